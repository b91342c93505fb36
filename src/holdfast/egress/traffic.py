"""The account of a command's network traffic and refusals, by host name. Pure module."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

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
    failed: int = 0  # connections that failed outside
    first_ms: int = 0
    last_ms: int = 0
    slowed_ms: int = 0  # how long limits delayed it


@dataclass(slots=True)
class RefusedHost:
    """A host that was refused to the command; without a port, its name was not resolved."""

    host: str
    port: int | None
    rule: str
    grant: str | None
    count: int = 0
    first_ms: int = 0
    program: str | None = None


class Traffic:
    """The account of one command. `tell` gets each refused host, and how often it was refused just now."""

    def __init__(self, tell: "Callable[[RefusedHost, int], None] | None" = None) -> None:
        self._tell = tell
        self._sent: dict[tuple[str, int], Sent] = {}
        self._refused: dict[tuple[str, int | None, str], RefusedHost] = {}
        self.dropped = 0  # rows that did not fit
        self._parts: list[Traffic] = []

    def connect(self, host: str, port: int, now_ms: int) -> Sent:
        """Count a new connection; return its row."""
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
        """Count a refused host."""
        key = (host, port, rule)
        if key not in self._refused:
            if len(self._refused) >= MAX_ROWS:
                self.dropped += 1
                return
            self._refused[key] = RefusedHost(host, port, rule, grant, 0, now_ms, program)
        self._refused[key].count += 1
        if self._tell is not None:
            self._tell(self._refused[key], 1)

    def take(self, report: Mapping[str, Any]) -> None:
        """Add the account of another process, as returned by its `report`."""
        part = Traffic()
        part._sent = {(row["host"], row["port"]): Sent(**row) for row in report["sent"]}
        part._refused = {
            (row["host"], row["port"], row["rule"]): RefusedHost(**row) for row in report["refused"]
        }
        part.dropped = report["dropped"]
        self._add(part)
        if self._tell is not None:
            for refused in part.refused:
                self._tell(refused, refused.count)

    def join(self, part: "Traffic") -> None:
        """Include another account, with its current values, until `leave`, which adds it for good."""
        self._parts.append(part)

    def leave(self, part: "Traffic") -> None:
        if part in self._parts:
            self._parts.remove(part)
            self._add(part)

    def _add(self, part: "Traffic") -> None:
        for sent in part.sent:
            row = self._sent.get((sent.host, sent.port))
            if row is not None:
                row.connections += sent.connections
                row.sent, row.received = row.sent + sent.sent, row.received + sent.received
                row.failed += sent.failed
                row.first_ms, row.last_ms = min(row.first_ms, sent.first_ms), max(row.last_ms, sent.last_ms)
            elif len(self._sent) < MAX_ROWS:
                self._sent[sent.host, sent.port] = replace(sent)
            else:
                self.dropped += 1
        for refused in part.refused:
            key = (refused.host, refused.port, refused.rule)
            if key in self._refused:
                self._refused[key].count += refused.count
            elif len(self._refused) < MAX_ROWS:
                self._refused[key] = replace(refused)
            else:
                self.dropped += 1
        self.dropped += part.dropped

    def has_refused(self, host: str, port: int | None, rule: str) -> bool:
        return (host, port, rule) in self._refused

    @property
    def sent(self) -> list[Sent]:
        return list(self._sent.values())

    @property
    def refused(self) -> list[RefusedHost]:
        return list(self._refused.values())

    @property
    def counts_others(self) -> bool:
        """Whether an account of another is, or may become, part of this one."""
        return bool(self._parts or self._sent or self._refused)

    def report(self) -> dict[str, object]:
        """A tree of plain values, including the accounts that joined."""
        if self._parts:
            whole = Traffic()
            for part in (self, *self._parts):
                whole._add(part)
            return whole.report()
        return {
            "sent": [asdict(row) for row in self.sent],
            "refused": [asdict(row) for row in self.refused],
            "dropped": self.dropped,
        }


def grant_of(host: str, port: int | None, usual: Iterable[int] = (80, 443)) -> str:
    """The smallest option that allows a host at a port."""
    return f"{_OPTION} {host}" if port is None or port in usual else f"{_OPTION} {host}:{port}"
