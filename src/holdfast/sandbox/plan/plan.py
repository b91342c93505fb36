"""The plan: the operations of a backend on the view of the file system, in order. Pure module.

A plan is a base and steps. Paths in it are canonical and existed when it was made, so a backend that meets a
symbolic link on the way to one of them has met a race and must refuse.

Applying a plan means: copy every tree that a step names before anything is covered; apply the pins; then the
other steps from first to last, each covering what lies at its path. A step below a masked directory, or
anywhere on an empty base, needs its mount point made in the covering file system first. `WRITABLE /` is
possible.

The launcher imports this module, so it needs little of the standard library.
"""

from holdfast.light import TYPE_CHECKING, Final, StrEnum, value

if TYPE_CHECKING:
    from holdfast.sandbox.policy.hostwish import HostWish

MAX_SOCKETS: Final = 32  # granted ones; each may cost a descriptor in one message, which takes at most 253
MAX_LOOPBACK_PORTS: Final = 64  # two sockets each, in one message, which takes at most 253

NAME_SERVER: Final = "127.0.0.1"  # for a command that reaches hosts by name; also a C library's own default


class Base(StrEnum):
    """The state before the first step."""

    HOST = "host"  # everything is visible and read-only
    EMPTY = "empty"  # nothing is visible
    UNTOUCHED = "untouched"  # the host as it is; there are no steps


class StepKind(StrEnum):
    READABLE = "readable"  # shows the path, read-only, where nothing was visible
    WRITABLE = "writable"  # shows the path with the host's own permissions
    READ_ONLY = "read-only"  # takes writing away below a writable path
    MASK_DIRECTORY = "mask-directory"  # an empty directory without permissions covers it
    MASK_FILE = "mask-file"  # an empty file without permissions covers it
    PIN = "pin"  # the directory cannot be renamed or removed, its contents are unaffected


GRANTS: Final = (StepKind.READABLE, StepKind.WRITABLE, StepKind.READ_ONLY)
MASKS: Final = (StepKind.MASK_DIRECTORY, StepKind.MASK_FILE)
_TEXTS: Final = {
    StepKind.READABLE: "{} is readable",
    StepKind.WRITABLE: "{} is writable",
    StepKind.READ_ONLY: "{} is read-only",
    StepKind.MASK_DIRECTORY: "{} is hidden with all below it",
    StepKind.MASK_FILE: "{} is hidden",
    StepKind.PIN: "{} cannot be renamed or removed",
}
_BASE_TEXTS: Final = {
    Base.HOST: "everything is readable, nothing is writable",
    Base.EMPTY: "nothing is visible",
    Base.UNTOUCHED: "the file system is as on the host",
}


@value
class Step:
    kind: StepKind
    path: str

    def describe(self) -> str:
        return _TEXTS[self.kind].format(self.path)


@value
class PlanLink:
    """A symbolic link of the host that an empty base lacks, as `/bin` to `usr/bin`."""

    path: str
    target: str

    def describe(self) -> str:
        return f"{self.path} is a link to {self.target}"


@value
class Plan:
    """The steps in the order of their application: pins first, then shallow before deep."""

    base: Base
    steps: tuple[Step, ...]
    network_off: bool
    cwd: str
    absent: tuple[str, ...] = ()  # must not appear while the command runs; nothing is there now
    later: tuple[str, ...] = ()  # denied; nothing is there now, and what appears must be hidden
    links: tuple[PlanLink, ...] = ()  # only on an empty base, made before the steps
    loopback_ports: tuple[int, ...] = ()  # of the host, let through although the network is off
    by_name: bool = False  # a name server inside, and addresses for what it knows; the network is off
    asks: bool = False  # a person is asked about other names, so a connection to one may have to wait
    sockets: tuple[str, ...] = ()  # unix sockets of the host that may be reached
    hosts: "HostWish | None" = None  # which names; not encoded, since processes inside must not know them
    open_names: tuple[str, ...] = ()  # what it cannot prevent, in words; not encoded: no backend uses it

    def __post_init__(self) -> None:
        if self.loopback_ports and not self.network_off:
            raise ValueError("ports are let through only while the network is off")
        if self.by_name and not self.network_off:
            raise ValueError("hosts are reached by name only while the network is off")

    @property
    def listens(self) -> bool:
        """Whether sockets are made inside and sent out."""
        return self.by_name or bool(self.loopback_ports)

    @property
    def covers(self) -> bool:
        """Whether it covers anything (`covers.py`); then the process that applies it sends its namespaces."""
        return bool(self.later) or any(step.kind in (*MASKS, StepKind.READ_ONLY) for step in self.steps)

    def describe(self) -> list[str]:
        """One line per operation, for users."""
        return [
            _BASE_TEXTS[self.base],
            *(link.describe() for link in self.links),
            *(step.describe() for step in self.steps),
            *(f"{path} does not exist and must not be created" for path in self.absent),
            *(f"{path} does not exist and would be hidden" for path in self.later if path not in self.absent),
            f"network is {self._network}",
            *(f"the host {rule} is reached by its name" for rule in (self.hosts.allow if self.hosts else ())),
            *(f"the host {rule} is not reached" for rule in (self.hosts.deny if self.hosts else ())),
            *(["somebody is asked about every other host"] if self.hosts and self.hosts.ask_s else ()),
            *(f"TCP port {port} of the host's loopback is reachable" for port in self.loopback_ports),
            *(f"the unix socket {path} of the host is reachable" for path in self.sockets),
            f"starts in {self.cwd}",
        ]

    @property
    def _network(self) -> str:
        if self.by_name:
            return "off but for hosts that are allowed by name, at addresses of their own"
        return "off" if self.network_off else "on"

    def may_replace(self, path: str) -> bool:
        """Whether the command could put something else at this path."""
        if self.base is Base.UNTOUCHED:
            return True
        around = path
        kinds = {step.path: step.kind for step in self.steps if step.kind is not StepKind.PIN}
        while around != "/":
            around = around.rpartition("/")[0] or "/"
            if around in kinds:
                return kinds[around] is StepKind.WRITABLE
        return False


# A header (base, network with its ports, cwd, number of absent names, of later ones, of sockets and of
# links), then those names and the sockets, then links and steps as pairs. A path holds every byte but NUL,
# which therefore separates.
_HEADER: Final = 7
_NETWORKS: Final = {  # off, by name, asks
    (False, False, False): "on",
    (True, False, False): "off",
    (True, True, False): "names",
    (True, True, True): "asked",
}


def encode(plan: Plan) -> bytes:
    """The plan as bytes; `decode` gives it back.

    Raises:
        ValueError: a path holds a NUL.
    """
    fields = [
        plan.base.value,
        " ".join((_NETWORKS[plan.network_off, plan.by_name, plan.asks], *map(str, plan.loopback_ports))),
        plan.cwd,
        str(len(plan.absent)),
        str(len(plan.later)),
        str(len(plan.sockets)),
        str(len(plan.links)),
        *plan.absent,
        *plan.later,
        *plan.sockets,
    ]
    for link in plan.links:
        fields += (link.path, link.target)
    for step in plan.steps:
        fields += (step.kind.value, step.path)
    if any("\0" in field for field in fields):
        raise ValueError("a path holds a NUL")
    return "\0".join(fields).encode("utf-8", "surrogateescape")


def decode(data: bytes) -> Plan:
    """The plan that was encoded.

    Raises:
        ValueError: these bytes are not a plan.
    """
    fields = data.decode("utf-8", "surrogateescape").split("\0")
    if len(fields) < _HEADER:
        raise ValueError("not a plan")
    network, *ports = fields[1].split(" ")
    if network not in _NETWORKS.values() or not all(_is_port(port) for port in ports):
        raise ValueError("not a plan")
    later_at = _HEADER + int(fields[3])
    sockets_at = later_at + int(fields[4])
    links_at = sockets_at + int(fields[5])
    steps_at = links_at + 2 * int(fields[6])
    bounds = (_HEADER, later_at, sockets_at, links_at, steps_at, len(fields))
    if list(bounds) != sorted(bounds) or (len(fields) - steps_at) % 2:
        raise ValueError("not a plan")
    links, steps = fields[links_at:steps_at], fields[steps_at:]
    return Plan(
        base=Base(fields[0]),
        steps=tuple(Step(StepKind(kind), path) for kind, path in zip(steps[::2], steps[1::2], strict=True)),
        network_off=network != "on",
        by_name=network in ("names", "asked"),
        asks=network == "asked",
        cwd=fields[2],
        absent=tuple(fields[_HEADER:later_at]),
        later=tuple(fields[later_at:sockets_at]),
        links=tuple(PlanLink(path, target) for path, target in zip(links[::2], links[1::2], strict=True)),
        loopback_ports=tuple(map(int, ports)),
        sockets=tuple(fields[sockets_at:links_at]),
    )


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 1 << 16 and str(int(text)) == text
