"""The older policies: there and back without loss, and what has no older form."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.legacy import (
    DangerFullAccess,
    ExternalSandbox,
    LegacyPolicy,
    ReadOnly,
    WorkspaceWrite,
    from_policy,
    to_policy,
)
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    Network,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
    Where,
)
from holdfast.sandbox.policy.presets import full_access, read_only, workspace_write
from tests.support.rows import every_row

WHERE = Where("/w", ("/w",), tmpdir="/t")
ROOT = Special(Place.ROOT)


@every_row(
    ("legacy", "policy"),
    [
        (DangerFullAccess(), full_access()),
        (ReadOnly(), read_only()),
        (ReadOnly(network_access=True), read_only(Network.ON)),
        (ExternalSandbox(), Policy(None, Network.OFF, PolicyKind.EXTERNAL)),
        (ExternalSandbox(Network.ON), Policy(None, Network.ON, PolicyKind.EXTERNAL)),
        (WorkspaceWrite(), workspace_write()),
        (
            WorkspaceWrite(("/a", "/b"), network_access=True),
            workspace_write(["/a", "/b"], network=Network.ON),
        ),
        (WorkspaceWrite(exclude_tmpdir_env_var=True), workspace_write(tmpdir=False)),
        (WorkspaceWrite(exclude_slash_tmp=True), workspace_write(slash_tmp=False)),
        (WorkspaceWrite(("/tmp",), exclude_slash_tmp=True), workspace_write(["/tmp"], slash_tmp=False)),
    ],
)
def test_an_older_policy_goes_there_and_back(legacy: LegacyPolicy, policy: Policy) -> None:
    assert to_policy(legacy) == policy
    assert from_policy(policy, WHERE) == legacy


@every_row(
    ("policy", "legacy"),
    [
        (Policy(None, Network.ON), DangerFullAccess()),
        (Policy(None, Network.OFF), ExternalSandbox()),
        (Policy((Rule(ROOT, Access.WRITE),), Network.OFF), ExternalSandbox()),
        (Policy((Rule(ROOT, Access.WRITE),), Network.ON), DangerFullAccess()),
        (Policy((Rule(At("/usr"), Access.READ),), Network.OFF), ReadOnly()),
        (workspace_write().deny("/w/secret"), WorkspaceWrite()),
        (read_only().allow_write("/"), WorkspaceWrite(("/",), False, True, True)),
    ],
)
def test_reading_is_widened_on_the_way_back(policy: Policy, legacy: LegacyPolicy) -> None:
    assert from_policy(policy, WHERE) == legacy


def test_other_workspace_roots_become_writable_roots() -> None:
    assert from_policy(workspace_write(), Where("/w", ("/w", "/v"))) == WorkspaceWrite(("/v",))


def test_writing_only_outside_the_workspace_has_no_older_form() -> None:
    with pytest.raises(UsageError, match="requests filesystem writes outside the workspace root"):
        from_policy(read_only().allow_write("/elsewhere"), WHERE)
