"""What the executor of a process's commands takes from a request, and how it tells of a denial."""

import pytest
from msgspec import structs

from holdfast.confine.starts import Sandbox
from holdfast.egress.traffic import Traffic
from holdfast.errors import InvalidRequest, SandboxUnavailable
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.policy import Where, bind, read_only
from holdfast.server.processes.commands import (
    MAX_LIVE,
    MAX_SHOWN,
    CommandCeiling,
    CommandDenials,
    make_ceiling,
    show_command,
)
from holdfast.wire.environment import ShellInfo
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import Disabled, SandboxContext
from holdfast.wire.processes import CommandExecutor, DeniedCall, ShellSnapshotRequest, StartParams
from tests.support.rows import every_row

ASKED = CommandExecutor("/run/exec.sock", "token", SandboxContext(Disabled(), "disabled"), {})
START = StartParams("p", ["true"], PathUri("file:///"), {}, False)
DENIED = DeniedCall("p", 1, "write", "x", "/x", "openat", "EROFS", False, 7, "touch", 2, 0, "a rule", None)


def a_ceiling(limits: Limits | None = None) -> CommandCeiling:
    return CommandCeiling(bind(read_only(), Where("/")), "/", {}, limits, lambda _: None, lambda: 1)


def test_a_start_is_watched_and_takes_no_snapshot_of_a_shell() -> None:
    asked = structs.replace(START, shell_snapshot=ShellSnapshotRequest("s", ShellInfo("sh", "/bin/sh")))
    assert a_ceiling().restrict(asked, live=0) == structs.replace(START, watch=True)


def test_there_is_an_end_to_what_runs_at_once_and_to_executors() -> None:
    with pytest.raises(InvalidRequest):
        a_ceiling().restrict(START, live=MAX_LIVE)
    with pytest.raises(InvalidRequest):
        a_ceiling().restrict(structs.replace(START, commands=ASKED), live=0)


def test_the_stricter_limit_holds() -> None:
    ceiling = a_ceiling(Limits(memory=1 << 30, pids=100))
    assert ceiling.limit(None) == ceiling.limits
    assert ceiling.limit(Limits(memory=1 << 40, pids=7, open_files=200)) == Limits(
        memory=1 << 30, pids=7, open_files=200
    )
    assert a_ceiling().limit(Limits(pids=7)) == Limits(pids=7)
    assert a_ceiling().limit(None) is None


def test_a_process_that_is_not_confined_has_no_executor() -> None:
    with pytest.raises(SandboxUnavailable):
        make_ceiling(
            ASKED, Sandbox(), cwd="/", limits=None, tell=lambda _: None, run=lambda: 1, traffic=Traffic()
        )


def test_each_denial_is_told_with_its_command_and_what_is_new_of_it() -> None:
    told: list[DeniedCall] = []
    denials = CommandDenials(["/bin/bash", "-lc", "touch x"], told.append)
    denials.tell(DENIED)
    denials.tell(structs.replace(DENIED, number=2, count=5))
    denials.tell(structs.replace(DENIED, number=3, path="/y", count=1))
    assert [(one.path, one.count, one.command) for one in told] == [
        ("/x", 2, "touch x"),
        ("/x", 3, "touch x"),
        ("/y", 1, "touch x"),
    ]


@every_row(
    ("argv", "shown"),
    [
        (["/bin/sh", "-c", "a  &&\n b"], "a && b"),
        (["/bin/sh", "-c", "echo", "x"], "/bin/sh -c echo x"),
        (["cat", "a b"], "cat 'a b'"),
        (["x" * 300], "x" * (MAX_SHOWN - 1) + "…"),
    ],
)
def test_a_command_is_shown_as_a_person_would_write_it(argv: list[str], shown: str) -> None:
    assert show_command(argv) == shown
