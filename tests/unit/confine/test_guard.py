"""Holdfast's own directories in a policy: denied, and nothing of ours in them granted."""

import pytest

from holdfast.confine.guard import deny_homes
from holdfast.errors import UsageError
from holdfast.sandbox.policy.policy import (
    Access,
    BoundPolicy,
    Network,
    Policy,
    Where,
    bind,
    full_access,
    read_only,
    workspace_write,
)

HOME = "/home/u/.local/state/holdfast"


def bound(policy: Policy, cwd: str = "/srv/p", real: dict[str, str] | None = None) -> BoundPolicy:
    return deny_homes(bind(policy, Where(cwd, (cwd,))), (HOME,), real or {})


@pytest.mark.parametrize(
    "policy", [read_only(), workspace_write(), workspace_write(("/home/u",)), read_only().allow_read("/home")]
)
@pytest.mark.parametrize("below", ["", "/access.key", "/board/t_1/x", "/workers/w/state"])
def test_a_home_is_hidden_whatever_is_allowed_around_it(policy: Policy, below: str) -> None:
    assert bound(policy).access_at(f"{HOME}{below}") is Access.DENY


def test_what_a_run_is_given_below_a_home_is_its_own() -> None:
    policy = workspace_write().allow_write(f"{HOME}/workers/w/state").allow_read(f"{HOME}/runs/r_1")
    given = bound(policy, cwd=f"{HOME}/board/t_1")
    assert given.access_at(f"{HOME}/board/t_1/x") is Access.WRITE
    assert given.access_at(f"{HOME}/workers/w/state/x") is Access.WRITE
    assert given.access_at(f"{HOME}/runs/r_1/run.json") is Access.READ
    assert given.access_at(f"{HOME}/board/t_2") is Access.DENY
    assert given.access_at(f"{HOME}/runs/r_2/run.json") is Access.DENY


@pytest.mark.parametrize(
    "path",
    [
        *("", "/access.key", "/handoff.key", "/web.key", "/board", "/workers", "/runs", "/daemons"),
        *("/daemons/x", "/exec.sock", "/board.db", "/board.db-wal", "/homes/x", "/dispatcher.json"),
    ],
)
def test_what_is_ours_cannot_be_granted(path: str) -> None:
    for policy in (read_only().allow_read(f"{HOME}{path}"), workspace_write().allow_write(f"{HOME}{path}")):
        with pytest.raises(UsageError, match="Holdfast's own"):
            bound(policy)


def test_nor_by_another_name() -> None:
    with pytest.raises(UsageError, match="/tmp/link is Holdfast's own"):
        bound(read_only().allow_read("/tmp/link"), real={"/tmp/link": f"{HOME}/access.key"})


def test_a_directory_of_somebody_s_own_in_a_home_may_be_granted() -> None:
    assert bound(read_only().allow_read(f"{HOME}/project")).access_at(f"{HOME}/project/x") is Access.READ


@pytest.mark.parametrize("policy", [full_access(), Policy(None, Network.OFF)])
def test_a_policy_that_leaves_files_alone_stays_as_it_is(policy: Policy) -> None:
    plain = bind(policy, Where("/srv"))
    assert deny_homes(plain, (HOME,), {}) is plain


def test_without_a_home_nothing_is_added() -> None:
    plain = bind(read_only(), Where("/srv"))
    assert deny_homes(plain, (), {}) is plain
