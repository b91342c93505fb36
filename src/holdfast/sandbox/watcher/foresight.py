"""Which calls the sandbox may refuse, and which it did refuse, by the kernel's answer. Pure module.

A watcher sees calls before they are made. A sandbox decides by few criteria: whether the mount is read-only,
whether the path is hidden, which rules Landlock has. If one of these forbids the call, the call is
suspected, with the errnos that would show a refusal. This is foreseen and proves nothing: rather too many
calls are suspected than too few, and `blame` compares with the kernel's answer. A call that failed for
another reason (no such file, it exists already, its mode) is no denial.

The watcher imports this.
"""

import json
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.sandbox.plan.grants import find_closed
from holdfast.sandbox.plan.plan import GRANTS, MASKS, Base, Plan, StepKind
from holdfast.sandbox.watcher.notifyfilter import Aim

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10  # linux/socket.h
_MAPPED: Final = bytes(10) + b"\xff\xff"  # an IPv4 address in IPv6
_ACCESS: Final = {
    Aim.OPEN: "write",
    Aim.WRITE: "write",
    Aim.CHANGE: "write",
    Aim.CREATE: "create",
    Aim.REMOVE: "remove",
    Aim.BIND: "create",
    Aim.CONNECT: "connect",
    Aim.LISTEN: "listen",
}


def access(aim: Aim, *, exists: bool) -> str:
    """The name of an aim in a report."""
    return "create" if aim is Aim.OPEN and not exists else _ACCESS[aim]


class WatchScene(NamedTuple):
    """What confines the command, as far as it decides on calls."""

    mounts: bool = True  # a view of read-only mounts; otherwise Landlock alone decides, by `rules`
    network_off: bool = False
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()  # mount points: never renamed or removed
    rules: tuple[tuple[str, bool], ...] = ()  # from this path on, whether it may be written
    closed: tuple[str, ...] = ()  # writable directories whose entries cannot change
    writable: tuple[str, ...] = ()  # writable roots, in which most paths are not denied
    sockets: tuple[tuple[str, bool], ...] = ()  # granted unix sockets, and whether each is replaceable
    shown: tuple[str, ...] = ()  # granted paths below something hidden
    asks: bool = False  # a person is asked about hosts


class Terrain(NamedTuple):
    """What was found where a path leads."""

    path: str  # as resolved; a part that is missing or cannot be inspected is appended as written
    exists: bool = True
    shut: bool = False  # neither we nor the command may look there
    special: bool = False  # a device, a pipe or a socket
    read_only: bool = False  # whether its mount, or the mount it would be on, is read-only
    dotted: bool = False  # the call ends in . or .., which cannot be moved or removed anywhere


class Suspect(NamedTuple):
    """What a call wants to do with a path or an address, and the errnos that a refusal would show."""

    aim: Aim
    path: str
    asked: str  # as the program wrote it
    exists: bool
    errnos: tuple[str, ...]  # the likeliest first

    @property
    def access(self) -> str:
        return access(self.aim, exists=self.exists)


def list_refusals(aim: Aim, at: Terrain, scene: WatchScene) -> tuple[str, ...]:
    """The names of the errnos with which the sandbox may refuse this; empty if it does not decide here."""
    if not scene.mounts:
        return ("EACCES",) if _by_rules(aim, at, scene) else ()
    if _is_hidden(at.path, scene):
        return ("EACCES", "EROFS", "EBUSY")
    found = []
    if at.shut or (at.read_only and not (aim is Aim.OPEN and at.special)):
        found.append("EROFS")
    if aim in (Aim.REMOVE, Aim.CREATE) and at.path in scene.fixed and not at.dotted:
        found.append("EBUSY")
    return tuple(found)


def suspect(aim: Aim, at: Terrain, asked: str, scene: WatchScene, *, moves: bool) -> Suspect | None:
    """Check one path of a call; a call that `moves` between directories may fail with an errno of its own."""
    errnos = list_refusals(aim, at, scene)
    if not errnos:
        return None
    between = ("EXDEV",) if moves and errnos != ("EBUSY",) else ()
    return Suspect(aim, at.path, asked, at.exists, (*errnos, *between))


def suspect_connect(address: "Address", scene: WatchScene) -> Suspect | None:
    """Check a connection, or a datagram, to this address."""
    if not address.host or address.loopback or not scene.network_off:
        return None
    return Suspect(Aim.CONNECT, address.host, address.host, True, ("ENETUNREACH", "EADDRNOTAVAIL"))


def blame(errno: str, suspects: Iterable[Suspect]) -> Suspect | None:
    """The suspect that this answer of the kernel shows as refused; None if it was another answer."""
    return next((one for one in suspects if errno in one.errnos), None)


def _is_hidden(path: str, scene: WatchScene) -> bool:
    """Whether the path is hidden: the nearest of the hidden paths and of those shown inside them decides."""

    def nearest(places: tuple[str, ...]) -> int:
        return max((len(place) for place in places if _within(path, place)), default=0)

    return nearest(scene.hidden) > nearest(scene.shown)


def _by_rules(aim: Aim, at: Terrain, scene: WatchScene) -> bool:
    """Whether Landlock refuses it.

    Landlock does not guard modes, owners and times, and allows many devices. Where modes already prevent
    access, it is not consulted.
    """
    if aim is Aim.CHANGE or (aim is Aim.OPEN and at.special) or at.shut:
        return False
    if _is_hidden(at.path, scene):
        return True
    entry = aim in (Aim.CREATE, Aim.REMOVE, Aim.BIND) or not at.exists
    place = at.path.rpartition("/")[0] or "/" if entry else at.path
    covering = [rule for rule in scene.rules if _within(place, rule[0])]
    writable = max(covering, key=lambda rule: len(rule[0]), default=("/", False))[1]
    return not writable or (entry and place in scene.closed)


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root.endswith("/") else f"{root}/")


class Address(NamedTuple):
    """The target of a socket call: a path, or a `host`, which is "ADDRESS:PORT"."""

    path: bytes = b""
    host: str = ""
    loopback: bool = False


def address_of(data: bytes) -> Address:
    """The content of a `struct sockaddr`; empty if it is irrelevant or invalid."""
    if len(data) < 2:
        return Address()
    (family,) = struct.unpack_from("=H", data)
    if family == _AF_UNIX:
        return Address(path=data[2:].partition(b"\0")[0])  # an abstract name begins with a zero
    if family == _AF_INET and len(data) >= 8:
        port, raw = struct.unpack_from(">H4s", data, 2)
        return _host(raw, port)
    if family == _AF_INET6 and len(data) >= 24:
        port, raw = struct.unpack_from(">H4x16s", data, 2)
        if raw.startswith(_MAPPED):
            return _host(raw[12:], port)
        import ipaddress  # slow, and hardly ever needed

        own = int.from_bytes(raw, "big") in (0, 1)
        return Address(host=f"[{ipaddress.IPv6Address(raw)}]:{port}", loopback=own)
    return Address()


def _host(raw: bytes, port: int) -> Address:
    own = raw[0] == 127 or not any(raw)  # the unspecified address means this machine
    return Address(host=f"{'.'.join(map(str, raw))}:{port}", loopback=own)


def scene_of(plan: Plan, *, alone: bool, degraded: bool) -> WatchScene:
    """What decides when a plan is carried out by mounts, or by Landlock `alone`."""
    steps = plan.steps
    hidden = tuple(step.path for step in steps if step.kind in MASKS)
    granted = (step.path for step in steps if step.kind in GRANTS)
    shown = tuple(path for path in granted if any(_within(path, mask) for mask in hidden))
    writable = tuple(step.path for step in steps if step.kind is StepKind.WRITABLE)
    if not alone:
        return WatchScene(
            True,
            plan.network_off,
            hidden,
            tuple(step.path for step in steps),
            writable=writable,
            sockets=tuple((path, plan.may_replace(path)) for path in plan.sockets),
            shown=shown,
            asks=plan.asks,
        )
    kept = [step for step in steps if not (degraded and step.kind is StepKind.READ_ONLY)]
    decided = [(step.path, step.kind is StepKind.WRITABLE) for step in kept if step.kind in GRANTS]
    rules = [("/", plan.base is Base.UNTOUCHED), *decided]
    shut = find_closed(plan, degraded=degraded)
    return WatchScene(False, plan.network_off, hidden, (), tuple(rules), shut, writable, shown=shown)


def encode(scene: WatchScene) -> bytes:
    """Encode for `decode`, in the watcher."""
    return json.dumps(scene).encode()


def decode(data: bytes) -> WatchScene:
    mounts, network_off, hidden, fixed, rules, closed, writable, sockets, shown, asks = json.loads(data)
    decided, granted = (tuple((path, may) for path, may in pairs) for pairs in (rules, sockets))
    paths = (tuple(some) for some in (hidden, fixed, closed, writable, shown))
    hidden, fixed, closed, writable, shown = paths
    return WatchScene(mounts, network_off, hidden, fixed, decided, closed, writable, granted, shown, asks)
