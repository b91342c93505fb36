"""The reported denials of one watched process: deduplicated, counted, numbered, bounded. Pure module.

Equal denials form one entry with a count. Every change of an entry has a number of its own, so that a client
that was disconnected can ask for the entries that are newer than the last one it knows.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from msgspec import structs

from holdfast.sandbox.policy import sockets
from holdfast.sandbox.policy.credentials import is_credential
from holdfast.sandbox.policy.paths import grantable, name, parent
from holdfast.sandbox.policy.policy import Access
from holdfast.sandbox.reasons.denials import BY_NAME, Explain
from holdfast.wire.processes import DeniedCall, UnconfirmedCall

NAME_LOOKUP: Final = "getaddrinfo"  # the refused call when a host was only looked up by name
MAX_DENIALS: Final = 256  # entries kept per process: a reader learns nothing from more
MAX_DENIAL_BYTES: Final = 256 * 1024  # total length of their texts


class DenialNotice(msgspec.Struct, frozen=True):
    """The watcher's report on one kind of denial: `count` more of it; `predicted` if it is only foreseen."""

    syscall: str
    access: Literal["write", "create", "remove", "connect", "socket", "listen"]
    errno: str
    path: str
    asked: str
    pid: int
    comm: str
    count: int
    predicted: bool = False


class Counted(msgspec.Struct, frozen=True):
    """The watcher's report on what it could not report, counted since it began."""

    dropped: int
    unread: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy's decisions, and what exists on disk."""

    explain: Explain
    exists: Callable[[str], bool]
    closed: Collection[str] = ()  # writable directories in which the backend cannot allow changes of entries
    home: str = ""  # the user's home directory: no advice grants all of it for the sake of one file
    by_name: bool = False  # some hosts are reached by name, although the network is off

    def why(self, seen: DenialNotice) -> tuple[str | None, str | None]:
        """The rule in words, and the smallest grant that would allow the call, if one would."""
        if seen.access == "connect":
            return (BY_NAME, None) if self.by_name else ("the network is off", "--network on")
        if seen.access == "socket":
            return sockets.RULE, sockets.grant_for(seen.path)
        if seen.access == "listen":
            return "the command is watched, and can have no listener of its own besides", None
        if seen.errno == "EBUSY":
            return f"{seen.path} is held in place by the sandbox", None
        decision = self.explain(seen.path, Access.WRITE)
        if decision.allowed:
            return self._beyond_policy(seen.path), None
        if is_credential(seen.path):
            return decision.why, None
        needed = seen.path
        if seen.access == "remove" or (seen.access == "create" and self.exists(needed)):
            needed = parent(needed)  # a path that is granted on its own is a mount point
        folder = seen.syscall.startswith("mkdir") and name(needed).startswith(".")
        opened = seen.syscall.startswith(("open", "creat"))  # a rename needs more than its file granted
        needed = grantable(needed, self.exists, folder=folder, home=self.home if opened else "")
        wider = decision if needed == "/" else self.explain(needed, Access.WRITE)
        return decision.why, decision.grant if wider.allowed else wider.grant

    def _beyond_policy(self, path: str) -> str:
        folder = parent(path)
        if folder in self.closed:
            kept = f"entries of {folder} cannot change while something in it is protected"
            return f"{kept}; --degraded gives that up"
        return "the policy allows it; the host itself does not"


class DeniedLog:
    """Collects the watcher's reports."""

    def __init__(self, process_id: str, rules: Rules) -> None:
        self.process_id = process_id
        self._rules = rules
        self._entries: dict[tuple[str | bool, ...], DeniedCall | UnconfirmedCall] = {}
        self._bytes = 0
        self._number = 0
        self.dropped = 0
        self.unread = 0

    def add(self, seen: DenialNotice, *, at_ms: int) -> DeniedCall | UnconfirmedCall | None:
        """Add a report. Return the entry as it is now; None if there is no room for another."""
        kind = UnconfirmedCall if seen.predicted else DeniedCall
        call = kind(
            process_id=self.process_id,
            number=0,
            access=seen.access,
            asked=seen.asked,
            path=seen.path,
            syscall=seen.syscall,
            errno=seen.errno,
            predicted=seen.predicted,
            pid=seen.pid,
            comm=seen.comm,
            count=seen.count,
            at_ms=at_ms,
            rule=None,
            grant=None,
        )
        if _key(call) not in self._entries:
            rule, grant = self._rules.why(seen)
            call = structs.replace(call, rule=rule, grant=grant)
        return self.include(call)

    def include(self, more: DeniedCall | UnconfirmedCall) -> DeniedCall | UnconfirmedCall | None:
        """Add a call that was already judged; its count covers only what is new. Return as `add` does."""
        key = _key(more)
        known = self._entries.get(key)
        if known is None:
            texts = (more.path, more.asked, more.rule, more.grant, more.command)
            size = sum(len(text or "") for text in texts)
            if len(self._entries) >= MAX_DENIALS or self._bytes + size > MAX_DENIAL_BYTES:
                self.dropped += more.count
                return None
            self._bytes += size
            known = structs.replace(more, process_id=self.process_id, count=0)
        self._number += 1
        entry = structs.replace(
            more,
            process_id=self.process_id,
            number=self._number,
            asked=known.asked,
            comm=more.comm or known.comm,
            count=known.count + more.count,
            rule=known.rule,
            grant=known.grant,
        )
        self._entries.pop(key, None)  # the newest number comes last
        self._entries[key] = entry
        return entry

    def read(self, after: int) -> list[DeniedCall | UnconfirmedCall]:
        """The entries that have changed since number `after`, in order."""
        return [entry for entry in self._entries.values() if entry.number > after]

    @property
    def denied(self) -> list[DeniedCall]:
        """The entries of calls that were seen to be refused, in order."""
        return [entry for entry in self._entries.values() if isinstance(entry, DeniedCall)]

    @property
    def unconfirmed(self) -> int:
        """The number of calls of which it is unknown whether they were refused."""
        return sum(one.count for one in self._entries.values() if isinstance(one, UnconfirmedCall))


def _key(call: DeniedCall | UnconfirmedCall) -> tuple[str | bool, ...]:
    return (call.syscall, call.access, call.errno, call.path, call.predicted, call.command)
