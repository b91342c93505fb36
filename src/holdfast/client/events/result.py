"""The output and resource use of a command that ended. Pure module."""

from dataclasses import dataclass
from typing import Final

from holdfast.client.events.backlog import Ends
from holdfast.client.events.ordering import Event, Exited, Output
from holdfast.wire.processes import DenialReport, EnforcementReport, LimitReport, NetworkReport, ProcessUsage

MAX_OUTPUT_BYTES: Final = 16 * 1024 * 1024  # of each stream in a Result, by default


@dataclass(frozen=True, slots=True)
class Result:
    """How a process ended, and its output. With a terminal all output is in `stdout`."""

    code: int
    stdout: bytes
    stderr: bytes
    denial: DenialReport | None
    sandbox_denied: bool | None
    enforcement: EnforcementReport | None
    usage: ProcessUsage | None
    dropped_bytes: int
    limit: LimitReport | None = None  # the limit that it reached
    network: NetworkReport | None = None  # traffic by host name


class Collector:
    """Collects the output and the exit for `wait`."""

    def __init__(self, max_bytes: int) -> None:
        stdout = Ends(max_bytes)
        self._streams = {"stdout": stdout, "pty": stdout, "stderr": Ends(max_bytes)}
        self._exited: Exited | None = None
        self.missed_bytes = 0

    def take(self, event: Event) -> None:
        if isinstance(event, Output):
            self._streams[event.stream].add(event.data)
        elif isinstance(event, Exited):
            self._exited = event

    def result(self, enforcement: EnforcementReport | None) -> Result:
        if self._exited is None:
            raise AssertionError("a process closes after its exit")
        (stdout, missing), (stderr, more) = (self._streams[name].read() for name in ("stdout", "stderr"))
        end = self._exited
        return Result(
            code=end.code,
            stdout=stdout,
            stderr=stderr,
            denial=end.denial,
            sandbox_denied=end.sandbox_denied,
            enforcement=enforcement,
            usage=end.usage,
            dropped_bytes=missing + more + self.missed_bytes,
            limit=end.limit,
            network=end.network,
        )
