"""Turns refused calls into evidence: the role of the file, and what would help. Pure module.

The watcher reports refused calls, or in explain mode `strace` does, line by line. strace is slower and exact:
the errno is the one that the program got, and refused reads are seen as well. It must attach from outside the
sandbox, because inside no process may trace. A call without its end, because the line was cut off or its
other half is missing, is ignored. Some calls do not say where a relative path begins. The watcher knows that,
but cannot see the result of a call that strace follows (`explaining`). If neither knows, the path is reported
as it was written.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.agents.catalog.agent import Agent, launch, relocation_of, state_of
from holdfast.agents.evidence.evidence import MAX_SEEN, Denied, Evidence, Source
from holdfast.confine.deniedlog import NAME_LOOKUP, DenialNotice, Rules
from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import absolute
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Network
from holdfast.sandbox.watcher.foresight import access
from holdfast.sandbox.watcher.notifyfilter import CALLS, Aim, Call, PathArgument
from holdfast.wire.processes import DeniedCall as Refusal

MAX_UNFINISHED: Final = 4096  # unfinished calls at once, one per thread; more are not tracked
MAX_LINE: Final = 64 * 1024  # characters of a line; two paths of 4096 bytes, each byte escaped
REFUSALS: Final = frozenset({"EROFS", "EACCES", "EPERM", "ENETUNREACH", "ECONNREFUSED"})

_CALLS: Final = {call.name: call for call in CALLS if call.name != "connect"}
_SUN_PATH: Final = re.compile(r'sun_path=("(?:[^"\\]|\\.)*")')
_NOWHERE: Final = "the call does not say where this path begins"
_PROBING: Final = "= -1 ENOENT"
_ASKING: Final = frozenset({"access", "faccessat", "faccessat2"})  # these only ask for permissions
_LINE: Final = re.compile(r"(?:\[pid\s+(\d+)\]\s+|(\d+)\s+)?(.*)", re.DOTALL)
_UNFINISHED: Final = re.compile(r"(\w+)\((.*?)\s*<unfinished \.\.\.>", re.DOTALL)
_RESUMED: Final = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_FAILED: Final = re.compile(r"(\w+)\((.*)\)\s+= -1 (E[A-Z0-9]+)\b.*", re.DOTALL)
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?|<[^>]*>|[\[({]|[\])}]|,|[^"<>\[\](){},]+', re.DOTALL)
_DIRECTORY: Final = re.compile(r"(?:AT_FDCWD|\d+)<(.*)>", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN: Final = {"n": 10, "t": 9, "r": 13, "v": 11, "f": 12, "a": 7, "b": 8, "e": 27}
_HOST: Final = re.compile(
    r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)")', re.DOTALL
)
_LOOPBACK: Final = re.compile(r"127\.|0\.0\.0\.0$|::1?$|::ffff:127\.")
_WRITING: Final = re.compile(r"O_(?:WRONLY|RDWR|CREAT|TRUNC)\b")


class RefusalTally:
    """Counts known refusals of each kind: the watcher reports totals, and evidence only what is new."""

    def __init__(self, known: Iterable[Evidence]) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()
        for item in known:
            if isinstance(item.claim, Denied):
                self._counts[_key(item.claim)] += item.claim.count

    def fresh(self, refusal: Refusal) -> int:
        """Return how many of these refusals are new."""
        key = _key(refusal)
        more = max(0, refusal.count - self._counts[key])
        self._counts[key] += more
        return more


def _key(denied: Denied | Refusal) -> tuple[str, ...]:
    return (denied.syscall, denied.access, denied.errno, denied.path, denied.command)


@dataclass(frozen=True, slots=True)
class Whose:
    """The places of a worker: its user's home, its work tree, the state directory that we gave it."""

    agent: Agent
    home: str
    work: str
    state: str
    relocated: bool


def make_evidence(refusal: Refusal | Denied, whose: Whose, at: float) -> Evidence:
    """Return evidence of a refusal, with the path's role in the CLI's state and the variable to move it."""
    agent, state = whose.agent, whose.state
    moved = launch(agent, state=state).environment if whose.relocated else {}
    kept = state_of(agent, refusal.path, home=whose.home, work=whose.work, environment=moved)
    relocation = relocation_of(agent, kept, state=state) if kept is not None and not whose.relocated else ""
    denied = Denied(
        access=refusal.access,
        path=refusal.path,
        errno=refusal.errno,
        syscall=refusal.syscall,
        rule=refusal.rule or "",
        grant=refusal.grant or "",
        relocation=relocation,
        role=kept.role if kept is not None else "",
        pid=refusal.pid,
        comm=refusal.comm,
        count=refusal.count,
        host=isinstance(refusal, Denied) and refusal.host,
        command=refusal.command,
        aside=agent.reach is not None and refusal.syscall == NAME_LOOKUP and not refusal.command,
    )
    seen = f"{refusal.comm or 'process'} ({refusal.pid}): {refusal.syscall} {refusal.path}: {refusal.errno}"
    if refusal.command:
        seen += f", in the command {refusal.command}"
    return Evidence(Source.DENIAL, at, denied, seen[:MAX_SEEN])


def command_line(pid: int, output: str, *, strace: str = "strace") -> list[str]:
    """Return the command to attach strace to a process; it writes failed calls of it and its children.

    Not with --seccomp-bpf, which would be faster: strace supports it only for processes that it starts
    itself.
    """
    options = ("-f", "-qq", "-Z", "-y", "-s", "4096", "-e", "trace=%file,%network", "-e", "signal=none")
    return [strace, *options, "-o", output, "-p", str(pid)]


def tells(syscall: str, access: str, errno: str, asked: str) -> bool:
    """Return whether strace also reports a call that the watcher reported; strace's report is better."""
    if errno not in REFUSALS or access == "listen":
        return False
    call = _CALLS.get(syscall)
    return access == "connect" or asked.startswith("/") or (call is not None and _names_directory(call))


def _names_directory(call: Call) -> bool:
    return all(place.directory is not None for place in call.places)


class Strace:
    """Parses the output of strace, line by line."""

    def __init__(self, bound: BoundPolicy, exists: Callable[[str], bool]) -> None:
        self._bound = bound
        self._rules = Rules(bound.explain, exists)
        self._begun: dict[int, tuple[str, str]] = {}

    def feed(self, line: str) -> Denied | None:
        """Return the denial in this line, if it contains or completes one."""
        if _PROBING in line and "resumed>" not in line:
            return None  # most lines: lookups of missing files
        found = _LINE.match(line.rstrip("\n")[:MAX_LINE])
        if found is None:
            return None
        pid, text = int(found[1] or found[2] or 0), found[3]
        if (begun := _UNFINISHED.match(text)) is not None:
            if len(self._begun) < MAX_UNFINISHED or pid in self._begun:
                self._begun[pid] = (begun[1], begun[2])
            return None
        if (resumed := _RESUMED.match(text)) is not None:
            name, args = self._begun.pop(pid, ("", ""))
            if name != resumed[1]:
                return None
            text = f"{name}({args}{resumed[2]}"
        failed = _FAILED.match(text)
        if failed is None or failed[3] not in REFUSALS:
            return None
        return self._denied(pid, failed[1], split(failed[2]), failed[3])

    def _denied(self, pid: int, name: str, args: list[str], errno: str) -> Denied | None:
        if name == "socket":
            return self._network(pid, name, args[0] if args else "", errno)
        if name == "connect" and errno == "EACCES" and (sun := _SUN_PATH.search(",".join(args))):
            return self._unix(pid, name, _text(sun[1]) or "", errno)
        if name in ("connect", "sendto", "sendmsg", "bind") and (host := _HOST.search(",".join(args))):
            address = host[2] or host[3]
            whole = f"[{address}]:{host[1]}" if host[3] else f"{address}:{host[1]}"
            return self._network(pid, name, whole, errno, loopback=_LOOPBACK.match(address) is not None)
        if errno in ("ENETUNREACH", "ECONNREFUSED"):
            return None
        if errno == "EROFS" and name in _ASKING:
            return None
        found = [place for one in _wanted(name, args) if (place := _place(*one)) is not None]
        if not found:
            return None
        wanted, path = max(reversed(found), key=lambda place: self._blame(*place))
        if not path.startswith("/"):
            return self._nowhere(pid, name, wanted, path, errno)
        if errno == "EROFS" and wanted == "read":
            wanted = "write"  # for example of an attribute
        if wanted == "create" and "O_CREAT" in ",".join(args) and self._rules.exists(path):
            wanted = "write"
        rule, grant = self._why(name, wanted, path, errno, pid)
        return Denied(
            wanted,
            path,
            errno,
            name,
            rule=rule or "",
            grant=grant or "",
            pid=pid,
            host=wanted == "read" and self._allows(wanted, path),
        )

    def _blame(self, wanted: str, path: str) -> int:
        """Return how likely it is that this one of two paths was refused."""
        if not path.startswith("/"):
            return 1
        return 0 if self._allows(wanted, path) else 2

    def _nowhere(self, pid: int, name: str, wanted: str, path: str, errno: str) -> Denied:
        host = wanted == "read" and self._bound.full_read
        return Denied(wanted, path, errno, name, rule=_NOWHERE, pid=pid, host=host)

    def _allows(self, wanted: str, path: str) -> bool:
        return self._bound.explain(path, Access.READ if wanted == "read" else Access.WRITE).allowed

    def _why(self, name: str, wanted: str, path: str, errno: str, pid: int) -> tuple[str | None, str | None]:
        match wanted:
            case "write" | "create" | "remove":
                return self._rules.why(DenialNotice(name, wanted, errno, path, path, pid, "", 1))
            case _:
                decision = self._bound.explain(path, Access.READ)
                beyond = "the policy allows it; the host itself does not"
                return beyond if decision.allowed else decision.why, decision.grant

    def _unix(self, pid: int, name: str, path: str, errno: str) -> Denied:
        rule, grant = self._rules.why(DenialNotice(name, "socket", errno, path, path, pid, "", 1))
        return Denied("socket", path, errno, name, rule=rule or "", grant=grant or "", pid=pid)

    def _network(
        self, pid: int, name: str, address: str, errno: str, *, loopback: bool = False
    ) -> Denied | None:
        """Return a denial if the network is off; otherwise the sandbox is not what refused."""
        if self._bound.network is not Network.OFF or address in ("AF_UNIX", "AF_LOCAL"):
            return None
        rule = "the network is off"
        if errno == "ECONNREFUSED":
            if not loopback:
                return None
            rule = "the network is off: the loopback inside is not the host's"
        return Denied("connect", address, errno, name, rule=rule, grant="--network on", pid=pid)


def split(args: str) -> list[str]:
    """Split the arguments of a call; commas in strings, structures and paths do not separate."""
    parts, depth = [""], 0
    for piece in _PART.findall(args):
        if piece in ("(", "[", "{"):
            depth += 1
        elif piece in (")", "]", "}"):
            depth -= 1
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


_Wanted: TypeAlias = tuple[str, str | None, str | None]


def _wanted(name: str, args: list[str]) -> list[_Wanted]:
    """Return the access, the path and its base directory for each path of a call."""
    call = _CALLS.get(name)
    if call is None or (call.aims[0] is Aim.OPEN and not _WRITING.search(",".join(args))):
        texts = [_text(arg) for arg in args]
        at = next((place for place, text in enumerate(texts) if text is not None), None)
        if at is None:
            return []
        return [("read", texts[at], _folder(args[at - 1]) if at else None)]
    if call.aims[0] is Aim.BIND:
        sun = _SUN_PATH.search(",".join(args))
        return [("create", _text(sun[1]) if sun else None, None)]
    creates = "O_CREAT" in ",".join(args)
    return [
        (access(aim, exists=not creates), _text(args[place.path]), _directory(place, args))
        for aim, place in zip(call.aims, call.places, strict=False)
        if place.path < len(args)
    ]


def _place(wanted: str, written: str | None, folder: str | None) -> tuple[str, str] | None:
    """Return the access and the absolute path; the path as written if it is relative to an unknown place."""
    if not written:
        return None
    if folder is None and not written.startswith("/"):
        return wanted, written
    try:
        return wanted, absolute(written, folder or "/")
    except UsageError:
        return None


def _directory(place: PathArgument, args: list[str]) -> str | None:
    return None if place.directory is None else _folder(args[place.directory])


def _folder(arg: str) -> str | None:
    found = _DIRECTORY.fullmatch(arg)
    return None if found is None else _unescape(found[1])


def _text(arg: str) -> str | None:
    found = _STRING.match(arg)
    return None if found is None else _unescape(found[1])


def _unescape(text: str) -> str:
    """Undo strace's escapes byte by byte; bytes that are not UTF-8 become escapes again."""

    def one(found: "re.Match[str]") -> str:
        code = found[1]
        if code[0] == "x" and len(code) == 3:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return chr(_PLAIN[code]) if code in _PLAIN else code

    plain = text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("latin-1")
    return _ESCAPE.sub(one, plain).encode("latin-1").decode("utf-8", "backslashreplace")
