"""Policies on what a command may access: as values, bound to a place, and explained. Pure module.

The most specific path decides, whatever its access; on the same path deny beats write beats read; without a
match nothing is allowed. Deny patterns override that order: they always win. Symbolic places stay symbolic
until `bind`, because their meaning depends on the machine.

The metadata of every writable root (`.git` and the like, at its top level only) stays read-only, because
hooks and settings in there run outside the sandbox later. An explicit write rule lifts this protection.

Three policies have a name: `read_only`, `workspace_write`, `full_access`.
"""

from holdfast.errors import UsageError
from holdfast.light import (
    TYPE_CHECKING,
    Final,
    IntEnum,
    Iterable,
    StrEnum,
    TypeAlias,
    assert_never,
    derived,
    replace,
    value,
)
from holdfast.sandbox.policy.credentials import is_credential
from holdfast.sandbox.policy.hostwish import ASK_S, NO_HOSTS, HostWish
from holdfast.sandbox.policy.paths import absolute, depth, join, quote, within

if TYPE_CHECKING:
    from holdfast.sandbox.policy.globs import Pattern

PROTECTED_NAMES: Final = (".git", ".agents", ".codex", ".aws")

# Paths that a program needs in order to start at all, if they exist.
PLATFORM_ROOTS: Final = (
    "/bin",
    "/sbin",
    "/usr",
    "/etc",
    "/lib",
    "/lib64",
    "/nix/store",
    "/run/current-system/sw",
)
# Often a link out of /etc; without its target no name resolves.
_RESOLVER: Final = "/etc/resolv.conf"


class Access(IntEnum):
    """Accesses, in the order in which they win on the same path."""

    READ = 1
    WRITE = 2
    DENY = 3


class Place(StrEnum):
    """A place whose path depends on the machine and the run."""

    ROOT = "root"
    MINIMAL = "minimal"
    PROJECT_ROOTS = "project_roots"
    TMPDIR = "tmpdir"
    SLASH_TMP = "slash_tmp"
    UNKNOWN = "unknown"  # from a newer version; has no meaning here


class Network(StrEnum):
    ON = "enabled"
    OFF = "restricted"


class PolicyKind(StrEnum):
    MANAGED = "managed"  # we build the sandbox
    DISABLED = "disabled"  # no sandbox at all
    EXTERNAL = "external"  # another program isolates the files; we enforce only the network


@value
class At:
    path: str


@value
class Glob:
    """A pattern, see `holdfast.sandbox.policy.globs`; it can only deny."""

    pattern: str


@value
class Special:
    place: Place
    subpath: str | None = None


Target: TypeAlias = At | Glob | Special


@value
class Rule:
    target: Target
    access: Access
    skip_missing: bool = False


@value
class Policy:
    """The policy as asked for. `rules` None means that the file system is not restricted."""

    rules: tuple[Rule, ...] | None
    network: Network
    kind: PolicyKind = PolicyKind.MANAGED
    glob_depth: int | None = None  # the depth of a scan for deny patterns; None means unlimited
    sockets: tuple[str, ...] = ()  # unix sockets of the host that may be reached, whatever the network
    hosts: HostWish = NO_HOSTS

    def allow_read(self, path: str) -> "Policy":
        return self._with(Rule(At(path), Access.READ))

    def allow_write(self, path: str) -> "Policy":
        return self._with(Rule(At(path), Access.WRITE))

    def deny(self, path: str) -> "Policy":
        return self._with(Rule(At(path), Access.DENY))

    def deny_glob(self, pattern: str) -> "Policy":
        return self._with(Rule(Glob(pattern), Access.DENY))

    def allow_socket(self, path: str) -> "Policy":
        return self if path in self.sockets else replace(self, sockets=(*self.sockets, path))

    def allow_host(self, rule: str) -> "Policy":
        """Network off except for this host, as `holdfast.egress.hosts` reads the rule."""
        hosts = replace(self.hosts, allow=tuple(dict.fromkeys((*self.hosts.allow, rule))))
        return replace(self, network=Network.OFF, hosts=hosts)

    def keep_secret(self, text: str) -> "Policy":
        """Keep a key outside, as `secretwish.py` reads it, and allow its host. Raises UsageError."""
        from holdfast.sandbox.policy.secretwish import parse_secret

        allowed = self.allow_host(parse_secret(text).rule)
        return replace(allowed, hosts=replace(allowed.hosts, secrets=(*self.hosts.secrets, text)))

    def ask_network(self, within_s: float = ASK_S) -> "Policy":
        """Network off, and a person is asked about each host that no rule decides on."""
        return replace(self, network=Network.OFF, hosts=replace(self.hosts, ask_s=within_s))

    def allow_net(self, preset: str) -> "Policy":
        """Network off except for the hosts of a client; these are found before anything is started."""
        hosts = replace(self.hosts, presets=(*self.hosts.presets, preset))
        return replace(self, network=Network.OFF, hosts=hosts)

    def limit_net(self, limit: str) -> "Policy":
        """Bound the traffic to hosts by name: `500M`, `10M/s`, `20conn/s`, for some hosts as `HOST=500M`."""
        return replace(self, hosts=replace(self.hosts, limits=(*self.hosts.limits, limit)))

    def deny_host(self, rule: str) -> "Policy":
        return replace(self, hosts=replace(self.hosts, deny=(*self.hosts.deny, rule)))

    def with_network(self, network: Network) -> "Policy":
        return replace(self, network=network)

    def _with(self, rule: Rule) -> "Policy":
        if self.rules is not None:
            return replace(self, rules=(*self.rules, rule))
        if rule.access is not Access.DENY:
            return self
        return replace(self, rules=(Rule(Special(Place.ROOT), Access.WRITE), rule), kind=PolicyKind.MANAGED)


@value
class Where:
    """The meaning of the symbolic places in one run."""

    cwd: str
    workspace_roots: tuple[str, ...] = ()  # if empty, an entry for project roots grants nothing
    tmpdir: str | None = None
    slash_tmp: bool = True  # whether /tmp is a directory


@value
class BoundRule:
    path: str
    access: Access
    origin: Rule
    skip_missing: bool = False
    protects: str | None = None  # the writable root whose metadata this is


@value
class BoundGlob:
    pattern: "Pattern"
    origin: Rule


@value
class PathDecision:
    """The rule that decides on a path, in words. `grant` is the flag that would allow exactly this."""

    allowed: bool
    rule: Rule | None
    why: str
    grant: str | None


class Need(StrEnum):
    """One kind of limit that a policy may ask for."""

    FILE_SYSTEM = "filesystem"
    NETWORK_OFF = "network-off"
    LOOPBACK_PORTS = "loopback-ports"
    UNIX_SOCKETS = "unix-sockets"
    HOSTS_BY_NAME = "hosts-by-name"


@value
class BoundPolicy:
    """A policy in which every path is concrete. `rules` contain the protected metadata too."""

    rules: tuple[BoundRule, ...]
    globs: tuple[BoundGlob, ...]
    network: Network
    kind: PolicyKind
    restricted: bool
    minimal: bool
    cwd: str
    glob_depth: int | None = None
    sockets: tuple[str, ...] = ()
    hosts: HostWish = NO_HOSTS
    _hash: int | None = derived()  # once, when needed: by file operations, not by starts
    _nearest: tuple[BoundRule, ...] | None = derived()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", None)
        object.__setattr__(self, "_nearest", None)

    def __hash__(self) -> int:
        if self._hash is None:
            key = (self.rules, self.globs, self.network, self.kind, self.restricted, self.minimal, self.cwd)
            object.__setattr__(self, "_hash", hash((*key, self.glob_depth, self.sockets, self.hosts)))
        return self._hash  # type: ignore[return-value] # set above

    @property
    def by_name(self) -> bool:
        """Whether hosts are reached by name, while the network is off."""
        return self.network is Network.OFF and self.hosts is not NO_HOSTS and self.hosts.reaches_any

    @property
    def full_read(self) -> bool:
        denies = self.globs or any(rule.access is Access.DENY for rule in self.rules)
        return not self.restricted or (not denies and self.access_at("/") is not Access.DENY)

    @property
    def full_write(self) -> bool:
        return not self.restricted or (
            any(r.access is Access.WRITE and r.origin.target == Special(Place.ROOT) for r in self.rules)
            and not self.globs
            and all(self.access_at(rule.path) is Access.WRITE for rule in self.rules)
        )

    def decide(self, path: str) -> BoundRule | None:
        """The rule that decides on an absolute path, ignoring patterns."""
        if self._nearest is None:  # sort once, winners first: every file operation calls this
            order = sorted(self.rules, key=lambda rule: (depth(rule.path), rule.access), reverse=True)
            object.__setattr__(self, "_nearest", tuple(order))
        for rule in self._nearest or ():
            if within(path, rule.path):
                return rule
        return None

    def access_at(self, path: str) -> Access:
        """The access that the rules give at an absolute path, ignoring patterns."""
        rule = self.decide(path)
        return Access.DENY if rule is None else rule.access

    def denied_by_pattern(self, path: str) -> BoundGlob | None:
        return next((glob for glob in self.globs if glob.pattern.matches(path)), None)

    def explain(self, path: str, access: Access) -> PathDecision:
        """Explain which rule decides whether `path` may be read or written.

        `path` is resolved lexically, against the working directory.

        Raises:
            UsageError: not a path, or not an access that can be asked for.
        """
        if access is Access.DENY:
            raise UsageError("ask for reading or for writing")
        path = absolute(path, self.cwd)
        if not self.restricted:
            return PathDecision(True, None, "the policy does not restrict the file system", None)
        if (glob := self.denied_by_pattern(path)) is not None:
            return PathDecision(False, glob.origin, f"it matches the denied pattern {glob.pattern}", None)
        rule = self.decide(path)
        if rule is None:
            return PathDecision(False, None, "no rule allows it", self._grant(path, access))
        allowed = access <= rule.access < Access.DENY
        why = self._why(rule, path, access)
        return PathDecision(allowed, rule.origin, why, None if allowed else self._grant(path, access))

    def _why(self, rule: BoundRule, path: str, access: Access) -> str:
        if rule.protects is not None and access is Access.WRITE:
            return f"{rule.path} is protected metadata of {_describe(rule, rule.protects)}"
        if rule.path == "/" and rule.access is Access.READ:
            if access is Access.READ:
                return "everything is readable"
            roots = ", ".join(rule.path for rule in self._writable_rules())
            return f"outside the writable roots {roots}" if roots else "no rule allows writing anywhere"
        who, state = _describe(rule, rule.path), _STATES[rule.access]
        return f"{who} is {state}" if path == rule.path else f"inside {who}, which is {state}"

    def _grant(self, path: str, access: Access) -> str | None:
        """The flag for exactly this path; None for credentials, and where another rule would still win."""
        if is_credential(path):
            return None
        wish = Rule(At(path), access)
        wider = replace(self, rules=(*self.rules, BoundRule(path, access, wish)))
        flag = "--allow-write" if access is Access.WRITE else "--allow-read"
        return f"{flag} {quote(path)}" if wider.access_at(path) is access else None

    def _writable_rules(self) -> list[BoundRule]:
        """One rule per writable root, shallow first."""
        found = {rule.path: rule for rule in self.rules if self.decide(rule.path) == rule}
        writable = [rule for rule in found.values() if rule.access is Access.WRITE]
        return sorted(writable, key=lambda rule: (depth(rule.path), rule.path))


_STATES: Final = {Access.READ: "read-only", Access.WRITE: "writable", Access.DENY: "denied"}


def _describe(rule: BoundRule, path: str) -> str:
    """`path`, which is the rule's own or the root that it protects, with a description of what it is."""
    if rule.protects not in (None, path):
        return path
    match rule.origin.target:
        case Special(place=Place.PROJECT_ROOTS, subpath=below) if below is None or rule.protects:
            return f"the workspace root {path}"
        case Special(place=Place.TMPDIR | Place.SLASH_TMP):
            return f"the temporary directory {path}"
        case Special(place=Place.MINIMAL):
            return f"the platform directory {path}"
        case _:
            return path


def needs_of(bound: BoundPolicy) -> frozenset[Need]:
    """What a command under this policy requires of a backend."""
    needs = set()
    if not bound.full_write:
        needs.add(Need.FILE_SYSTEM)
    if bound.network is Network.OFF:
        needs.add(Need.NETWORK_OFF)
    if bound.by_name:
        needs.add(Need.HOSTS_BY_NAME)
    if needs and bound.sockets:
        from holdfast.sandbox.policy.sockets import is_of_run  # slow to load, and rarely needed

        if not all(map(is_of_run, bound.sockets)):
            needs.add(Need.UNIX_SOCKETS)
    return frozenset(needs)


def bind(policy: Policy, where: Where) -> BoundPolicy:
    """The policy with concrete paths. Does not read the disk: a path may be missing, or lead through a link.

    Raises:
        UsageError: a rule is invalid, such as a relative path or a pattern that allows.
    """
    cwd = absolute(where.cwd, "")
    roots = tuple(dict.fromkeys(absolute(root, "") for root in where.workspace_roots))
    rules: dict[tuple[str, Access], BoundRule] = {}
    globs: dict[tuple[str, str], BoundGlob] = {}
    for rule in policy.rules or ():
        if isinstance(rule.target, Glob):
            if rule.access is not Access.DENY:
                raise UsageError(f"the pattern `{rule.target.pattern}` can only deny")
            from holdfast.sandbox.policy.globs import bind_pattern

            for pattern in bind_pattern(rule.target.pattern, cwd, roots):
                globs.setdefault((pattern.root, pattern.tail), BoundGlob(pattern, rule))
        else:
            for path in _paths(rule.target, where, cwd, roots):
                rules.setdefault((path, rule.access), BoundRule(path, rule.access, rule, rule.skip_missing))
    bound = BoundPolicy(
        rules=tuple(rules.values()),
        globs=tuple(globs.values()),
        network=Network.ON if policy.kind is PolicyKind.DISABLED else policy.network,
        kind=policy.kind,
        restricted=policy.kind is PolicyKind.MANAGED and policy.rules is not None,
        minimal=False,
        cwd=cwd,
        glob_depth=policy.glob_depth,
        sockets=tuple(dict.fromkeys(absolute(path, "") for path in policy.sockets)),
        hosts=policy.hosts,
    )
    return _with_protection(_with_platform(bound, policy))


def _paths(target: At | Special, where: Where, cwd: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(target, At):
        return (absolute(target.path, ""),)
    match target.place:
        case Place.ROOT:
            return ("/",)
        case Place.PROJECT_ROOTS:
            below = _subpath(target.subpath)
            return tuple(absolute(below, root) for root in roots)
        case Place.TMPDIR:
            return (absolute(where.tmpdir, cwd),) if where.tmpdir else ()
        case Place.SLASH_TMP:
            return ("/tmp",) if where.slash_tmp else ()  # noqa: S108
        case Place.MINIMAL | Place.UNKNOWN:
            return ()
        case _:
            assert_never(target.place)


def _subpath(subpath: str | None) -> str:
    """Raises UsageError if it leaves its base."""
    if subpath is not None and (subpath.startswith("/") or ".." in subpath.split("/")):
        raise UsageError(f"`{subpath}` does not stay below the workspace root")
    return subpath or "."


def _with_platform(bound: BoundPolicy, policy: Policy) -> BoundPolicy:
    asked = next((r for r in policy.rules or () if r.target == Special(Place.MINIMAL)), None)
    if not bound.restricted or bound.full_read or asked is None or asked.access is Access.DENY:
        return bound
    paths = (*PLATFORM_ROOTS, *((_RESOLVER,) if bound.network is Network.ON else ()))
    # Platform roots only add: an existing rule for one of them is neither narrowed nor widened.
    silent = [path for path in paths if (rule := bound.decide(path)) is None or rule.path == "/"]
    added = [p for p in silent if bound.access_at(p) is Access.DENY]
    roots = (BoundRule(path, Access.READ, asked, skip_missing=True) for path in added)
    return replace(bound, rules=(*bound.rules, *roots), minimal=True)


def _with_protection(bound: BoundPolicy) -> BoundPolicy:
    """Add the missing protection of every writable root, and mark the rules that the policy spells out."""
    if not bound.restricted or bound.full_write:
        return bound
    owners = {join(root.path, name): root for root in bound._writable_rules() for name in PROTECTED_NAMES}
    nested = {path for path, root in owners.items() if any(within(root.path, other) for other in owners)}
    owners = {path: root for path, root in owners.items() if path not in nested}
    marked = [
        replace(rule, protects=owners[rule.path].path)
        if rule.access is Access.READ and rule.path in owners
        else rule
        for rule in bound.rules
    ]
    named = {rule.path for rule in bound.rules}
    marked += (
        BoundRule(path, Access.READ, root.origin, skip_missing=True, protects=root.path)
        for path, root in owners.items()
        if path not in named
    )
    return replace(bound, rules=tuple(marked))


def read_only(network: Network = Network.OFF) -> Policy:
    """Everything is readable, nothing is writable."""
    return Policy((Rule(Special(Place.ROOT), Access.READ),), network)


def workspace_write(
    extra_writable: Iterable[str] = (),
    *,
    network: Network = Network.OFF,
    tmpdir: bool = True,
    slash_tmp: bool = True,
) -> Policy:
    """Everything is readable; the workspace roots, the temporary directories and these paths are writable."""
    places = [Special(Place.PROJECT_ROOTS)]
    places += [Special(Place.SLASH_TMP)] if slash_tmp else []
    places += [Special(Place.TMPDIR)] if tmpdir else []
    return Policy(
        (
            Rule(Special(Place.ROOT), Access.READ),
            *(Rule(place, Access.WRITE) for place in places),
            *(Rule(At(path), Access.WRITE) for path in extra_writable),
            *(
                Rule(Special(Place.PROJECT_ROOTS, name), Access.READ, skip_missing=True)
                for name in PROTECTED_NAMES
            ),
        ),
        network,
    )


def full_access() -> Policy:
    """No sandbox at all."""
    return Policy(None, Network.ON, PolicyKind.DISABLED)
