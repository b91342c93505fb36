"""Which calls the sandbox may refuse, and which it did refuse, by the kernel's answer. Pure module.

A watcher sees calls before they are made. A sandbox decides by few things: whether the mount is read-only,
whether the path is hidden, what Landlock was told. Where one of these says no the call is suspected, with the
errnos that would show it. That is foreseen and proves nothing: rather too much is suspected than too little,
and `blame` compares it with what the kernel answered. What failed for other reasons (no such file, it exists
already, its mode) is nobody's denial.

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
    """How an aim is called in a report."""
    return "create" if aim is Aim.OPEN and not exists else _ACCESS[aim]


class WatchScene(NamedTuple):
    """What confines the command, as far as it decides about calls."""

    mounts: bool = True  # a view of read-only mounts; otherwise Landlock stands alone, and decides by `rules`
    network_off: bool = False
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()  # mount points: never renamed or removed
    rules: tuple[tuple[str, bool], ...] = ()  # from this path on, may be written
    closed: tuple[str, ...] = ()  # writable directories whose entries cannot change
    writable: tuple[str, ...] = ()  # roots of what is mostly not denied
    sockets: tuple[tuple[str, bool], ...] = ()  # granted unix sockets; could the command replace it?
    shown: tuple[str, ...] = ()  # what lies below something hidden and is granted
    asks: bool = False  # somebody is asked about hosts


class Terrain(NamedTuple):
    """What was found where a path leads."""

    path: str  # as resolved; what is missing, or cannot be looked at, is attached as written
    exists: bool = True
    shut: bool = False  # nobody may look there, the command neither
    special: bool = False  # a device, a pipe or a socket
    read_only: bool = False  # the mount it is on, or would be
    dotted: bool = False  # the call names something by . or .., which nobody may move or remove anywhere


class Suspect(NamedTuple):
    """What a call wants of a path or an address, and the errnos by which a refusal of the sandbox shows."""

    aim: Aim
    path: str
    asked: str  # as the program wrote it
    exists: bool
    errnos: tuple[str, ...]  # the likeliest first

    @property
    def access(self) -> str:
        return access(self.aim, exists=self.exists)


def list_refusals(aim: Aim, at: Terrain, scene: WatchScene) -> tuple[str, ...]:
    """The errnos by name with which the sandbox may refuse this; none if it has no say here."""
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
    """One path of a call; one that `moves` between directories may be refused with an errno of its own."""
    errnos = list_refusals(aim, at, scene)
    if not errnos:
        return None
    between = ("EXDEV",) if moves and errnos != ("EBUSY",) else ()
    return Suspect(aim, at.path, asked, at.exists, (*errnos, *between))


def suspect_connect(address: "Address", scene: WatchScene) -> Suspect | None:
    """A connection, or a datagram, to this address."""
    if not address.host or address.loopback or not scene.network_off:
        return None
    return Suspect(Aim.CONNECT, address.host, address.host, True, ("ENETUNREACH", "EADDRNOTAVAIL"))


def blame(errno: str, suspects: Iterable[Suspect]) -> Suspect | None:
    """Of what was the kernel's answer a refusal by the sandbox? Of nothing, if it was another answer."""
    return next((one for one in suspects if errno in one.errnos), None)


def _is_hidden(path: str, scene: WatchScene) -> bool:
    """Whether the nearest of what is hidden and of what is shown in there again is hidden."""

    def nearest(places: tuple[str, ...]) -> int:
        return max((len(place) for place in places if _within(path, place)), default=0)

    return nearest(scene.hidden) > nearest(scene.shown)


def _by_rules(aim: Aim, at: Terrain, scene: WatchScene) -> bool:
    """Does Landlock refuse it?

    It does not guard modes, owners and times; of devices it lets many through; and where modes let nobody
    look it is not asked.
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
    """Where a socket call leads: to a path, or to somebody by `host`, which is "ADDRESS:PORT"."""

    path: bytes = b""
    host: str = ""
    loopback: bool = False


def address_of(data: bytes) -> Address:
    """What a `struct sockaddr` says; an empty one if it is of no interest or makes no sense."""
    if len(data) < 2:
        return Address()
    (family,) = struct.unpack_from("=H", data)
    if family == _AF_UNIX:
        return Address(path=data[2:].partition(b"\0")[0])  # an abstract one begins with a zero
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
    own = raw[0] == 127 or not any(raw)  # to no address in particular means to this machine
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
    """For `decode`, in the watcher."""
    return json.dumps(scene).encode()


def decode(data: bytes) -> WatchScene:
    mounts, network_off, hidden, fixed, rules, closed, writable, sockets, shown, asks = json.loads(data)
    decided, granted = (tuple((path, may) for path, may in pairs) for pairs in (rules, sockets))
    paths = (tuple(some) for some in (hidden, fixed, closed, writable, shown))
    hidden, fixed, closed, writable, shown = paths
    return WatchScene(mounts, network_off, hidden, fixed, decided, closed, writable, granted, shown, asks)
