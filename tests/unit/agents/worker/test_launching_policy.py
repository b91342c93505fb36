import sys
from pathlib import Path
from typing import cast

import pytest

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.worker.launching import WorkerSpec, prepare
from holdfast.agents.worker.preflight import preflight
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import UsageError

STATE = "/srv/state"


def policy_of(**more: object) -> Policy:
    wish = WorkerSpec(agent="shell", cwd="/srv/work", env={"PATH": "/usr/bin:/bin"}, prompt="true", **more)  # type: ignore[arg-type]  # a test that errs here fails here
    return prepare(wish, state=STATE).policy


def test_a_wish_without_more_gets_its_directory_its_state_and_the_shared_temporary_directories() -> None:
    assert policy_of() == Policy.workspace_write("/srv/work", network=True).allow_write(STATE)


def test_what_is_unreadable_is_denied_if_it_is_there_and_what_lies_in_it_can_be_allowed(
    tmp_path: Path,
) -> None:
    secret, missing = tmp_path / "secret", tmp_path / "missing"
    secret.mkdir()
    made = policy_of(unreadable=[str(secret), str(missing)], readable=[str(secret / "socket")])
    assert f"deny {secret}," in repr(made)
    assert f"read {secret}/socket" in repr(made)
    assert str(missing) not in repr(made)


def test_without_the_shared_temporary_directory_only_its_own_can_be_written() -> None:
    shown = repr(policy_of(private_tmp=True, network=False))
    assert "deny /tmp" in shown
    assert "write :tmpdir" not in shown
    assert "write :slash_tmp" not in shown
    assert f"write {STATE}" in shown
    assert "network off" in shown


def test_the_state_of_another_worker_can_be_gone_on_with() -> None:
    wish = WorkerSpec(
        agent="shell",
        cwd="/srv/work",
        env={"PATH": "/usr/bin:/bin"},
        prompt="true",
        state="/srv/other",
        arguments=["-c", "{prompt}; again"],
    )
    ready = prepare(wish, state=STATE)
    assert ready.argv[1:] == ("-c", "true; again")
    assert ready.state == "/srv/other"
    assert ready.environment["TMPDIR"] == "/srv/other/tmp"
    assert STATE not in repr(ready.policy)


def a_program(place: Path) -> str:
    place.parent.mkdir(parents=True)
    place.write_text("#!/bin/sh\n", "utf-8")
    place.chmod(0o755)
    return str(place)


def test_the_command_of_an_mcp_server_is_readable_below_what_is_hidden(tmp_path: Path) -> None:
    tool, agent = a_program(tmp_path / "tools" / "server"), a_program(tmp_path / "npm" / "claude")
    wish = WorkerSpec(
        agent="claude",
        cwd="/srv/work",
        env={"PATH": f"{tmp_path / 'npm'}:/usr/bin:/bin"},
        prompt="hello",
        mcp=[tool, "--run", "x"],
        unreadable=[str(tmp_path)],
    )
    shown = repr(prepare(wish, state=STATE).policy)
    assert f"read {tool}" in shown
    assert f"read {agent}" in shown
    denied = WorkerSpec(
        **{name: getattr(wish, name) for name in wish.__struct_fields__} | {"unreadable": [tool]}
    )
    with pytest.raises(UsageError):
        prepare(denied, state=STATE)


async def test_what_hides_our_interpreter_is_named_before_anything_is_tried() -> None:
    policy = Policy.workspace_write("/srv/work").deny(sys.base_prefix).deny(sys.prefix)
    [trouble] = await preflight(
        cast(Environment, None),  # nothing is run in it
        CATALOG["codex"],
        cwd="/srv/work",
        variables={"HOME": "/srv/home"},
        policy=policy,
        state=STATE,
        base=None,
    )
    assert "cannot be read there" in trouble.what
    assert "is denied" in trouble.errno
