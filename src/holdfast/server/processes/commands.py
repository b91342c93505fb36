"""The executor of one process's commands, from the view of the process table.

A process with its own kind of sandbox (codex) has each command run by us, outside of the sandbox that the
process itself is in. A `CommandCeiling` is the most that its commands may have: a policy that is never wider
than the process's own, and its limits, which hold for the process and its commands together. The ceiling
belongs to the process and ends with it.
"""

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from msgspec import structs

from holdfast.confine.sandboxes import bound_of
from holdfast.confine.starts import Sandbox
from holdfast.egress.asking.asker import Ask, ask_nobody
from holdfast.egress.traffic import Traffic
from holdfast.errors import InvalidRequest, SandboxUnavailable
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.plan.planner import settle
from holdfast.sandbox.plan.resolve import look
from holdfast.sandbox.plan.select import Way
from holdfast.sandbox.policy.narrowing import narrow
from holdfast.sandbox.policy.policy import BoundPolicy
from holdfast.wire.processes import CommandExecutor, DeniedCall, StartParams, WatchedCall

MAX_LIVE: Final = 64  # commands of one connection at the same time, as many as codex itself allows
MAX_SHOWN: Final = 200  # characters of a command in a denial's report
_SCRIPT: Final = ("-c", "-lc", "-pc", "-fc")


@dataclass(frozen=True, slots=True)
class CommandCeiling:
    """What no command of one process may exceed, and who is notified of denials."""

    bound: BoundPolicy  # on real paths
    cwd: str
    env: dict[str, str] = field(repr=False)  # all that a command may inherit
    limits: Limits | None
    tell: Callable[[DeniedCall], None] = field(repr=False)
    run: Callable[[], int] = field(repr=False)  # the launcher's number of the process
    traffic: Traffic = field(default_factory=Traffic, repr=False)  # of the process, including its commands
    ask: Ask = field(default=ask_nobody, repr=False)  # about hosts, as for the process itself

    def restrict(self, params: StartParams, *, live: int) -> StartParams:
        """Convert a requested start to the one that is executed; its policy is narrowed elsewhere.

        A shell's start-up files run with each command, because a snapshot of them would be taken without
        limits.

        Raises:
            InvalidRequest: too many run already, or it requests an executor for itself.
        """
        if params.commands is not None:
            raise InvalidRequest("a command has no executor of its own")
        if live >= MAX_LIVE:
            raise InvalidRequest(f"{MAX_LIVE} commands run already")
        return structs.replace(params, shell_snapshot=None, watch=True)

    def limit(self, asked: Limits | None) -> Limits | None:
        """Return the limits of a command that requested these."""
        return asked or self.limits if asked is None or self.limits is None else asked.within(self.limits)


class CommandListener(Protocol):
    """Listens for the commands of a process; `close` ends them all."""

    def close(self) -> None: ...


OpenCommands: TypeAlias = Callable[[CommandCeiling, str, str], Awaitable[CommandListener]]


def make_ceiling(
    asked: CommandExecutor,
    sandbox: Sandbox,
    *,
    cwd: str,
    limits: Limits | None,
    tell: Callable[[DeniedCall], None],
    run: Callable[[], int],
    traffic: Traffic,
    ask: Ask = ask_nobody,
) -> CommandCeiling:
    """Create the ceiling for the commands of a process in this sandbox; inspects the disk.

    Raises:
        UsageError: the policy is invalid.
        SandboxUnavailable: the process could not reach its executor, or is not confined itself.
    """
    if sandbox.bound is None or sandbox.confinement is None or not sandbox.bound.restricted:
        raise SandboxUnavailable("a process that is not confined itself has no executor for its commands")
    if sandbox.confinement.way not in (Way.USER_NAMESPACE, Way.AS_ROOT):
        raise SandboxUnavailable("its sandbox lets it reach no unix socket, and so no executor")
    wanted = bound_of(asked.sandbox, cwd=cwd, environ=asked.env)
    return CommandCeiling(
        narrow(settle(wanted, look(wanted)), sandbox.bound),
        *(cwd, dict(asked.env), limits, tell, run, traffic, ask),
    )


class CommandDenials:
    """Reports the denials of one command with its command line; each report counts only new calls."""

    def __init__(self, argv: list[str], tell: Callable[[DeniedCall], None]) -> None:
        self._command = show_command(argv)
        self._tell = tell
        self._counts: dict[tuple[str, ...], int] = {}

    def tell(self, denied: WatchedCall) -> None:
        if not isinstance(denied, DeniedCall):
            return  # its result was not seen
        key = (denied.syscall, denied.access, denied.errno, denied.path)
        fresh = denied.count - self._counts.get(key, 0)
        self._counts[key] = denied.count
        self._tell(structs.replace(denied, count=fresh, command=self._command))


def show_command(argv: list[str]) -> str:
    """A command as a person would write it; for a shell with a script, the script."""
    text = argv[2] if len(argv) == 3 and argv[1] in _SCRIPT else shlex.join(argv)
    words = " ".join(text.split())
    return words if len(words) <= MAX_SHOWN else words[: MAX_SHOWN - 1] + "…"
