"""What went out of a command's network and what did not, by name. Pure module."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

MAX_ROWS: Final = 1024  # of each kind; further hosts are counted together
_OPTION: Final = "--allow-host"


@dataclass(slots=True)
class Sent:
    """What passed between the command and one host at one port; times in ms since 1970."""

    host: str
    port: int
    connections: int = 0
    sent: int = 0
    received: int = 0
    failed: int = 0  # connections that did not come about outside
    first_ms: int = 0
    last_ms: int = 0


@dataclass(slots=True)
class RefusedHost:
    """A host that the command asked for in vain; without a port, by a name that does not exist for it."""

    host: str
    port: int | None
    rule: str
    grant: str | None
    count: int = 0
    first_ms: int = 0
    program: str | None = None


class Traffic:
    """The account of one command."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, int], Sent] = {}
        self._refused: dict[tuple[str, int | None, str], RefusedHost] = {}
        self.dropped = 0  # refusals for which there was no room

    def connect(self, host: str, port: int, now_ms: int) -> Sent:
        """A connection begins: the row that it is counted in."""
        row = self._sent.setdefault((host, port), Sent(host, port, first_ms=now_ms))
        row.connections += 1
        row.last_ms = now_ms
        return row

    def refuse(
        self,
        host: str,
        port: int | None,
        rule: str,
        now_ms: int,
        *,
        grant: str | None,
        program: str | None = None,
    ) -> None:
        """A host is refused."""
        key = (host, port, rule)
        if key not in self._refused:
            if len(self._refused) >= MAX_ROWS:
                self.dropped += 1
                return
            self._refused[key] = RefusedHost(host, port, rule, grant, 0, now_ms, program)
        self._refused[key].count += 1

    def has_refused(self, host: str, port: int | None, rule: str) -> bool:
        return (host, port, rule) in self._refused

    @property
    def sent(self) -> list[Sent]:
        return list(self._sent.values())

    @property
    def refused(self) -> list[RefusedHost]:
        return list(self._refused.values())

    def report(self) -> dict[str, object]:
        """As a tree of plain values."""
        return {
            "sent": [asdict(row) for row in self.sent],
            "refused": [asdict(row) for row in self.refused],
            "dropped": self.dropped,
        }


def grant_of(host: str, port: int | None, usual: Iterable[int] = (80, 443)) -> str:
    """The smallest option that allows a host at a port."""
    return f"{_OPTION} {host}" if port is None or port in usual else f"{_OPTION} {host}:{port}"
