"""A bound policy as a profile for the sandbox of macOS, Seatbelt. Pure module.

Nothing here was ever run on macOS by us: the text is compared with what we mean it to be, and its
effect is that of the documents and of profiles in use. Whoever wires it to `sandbox-exec` proves it.

Seatbelt looks at real paths, so everything is decided on those, and they must be spelled as the disk
spells them: on a file system that ignores case, a rule for `Secrets` does not find `secrets`. Paths
reach the profile as parameters only. Where a pattern needs one in a regular expression it is made
harmless (see `seatbelt_regex`). So no path and no pattern changes the structure of a profile.

What no plan can enforce is refused here too, above all a rule that leads through a link which the
command could replace. A writable root that is reached through a link below the first level is refused
as well; `/tmp` and its like are links of the system's own.

A directory above something protected, hidden or matched by a pattern cannot be removed or renamed. A
pattern with `**` may match below every directory there is: none below its root can be removed then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import seatbelt_regex
from holdfast.sandbox.paths import depth, join, name, parent, within
from holdfast.sandbox.planner import plan_for, settle
from holdfast.sandbox.policy import Access, Bound, BoundRule, Network, Place, Rule, Special
from holdfast.sandbox.seatbelt_blocks import (
    BASE,
    NETWORK_SERVICES,
    PLATFORM,
    PLATFORM_ROOTS,
    PREFERENCES,
    rule,
)
from holdfast.sandbox.seen import Found, Seen
from holdfast.values import replace

# By its full name: a program of the same name that comes first on the path could do as it likes.
SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"
MAX_PROFILE_BYTES: Final = 512 * 1024  # half of what macOS takes as arguments and environment together

_Kinds = Mapping[str, Found]


@dataclass(frozen=True, slots=True)
class SeatbeltProfile:
    """The text, and the values of the parameters that it names."""

    text: str
    parameters: tuple[tuple[str, str], ...]


def command(profile: SeatbeltProfile, argv: Iterable[str]) -> tuple[str, ...]:
    """The arguments that run `argv` under the profile."""
    values = (f"-D{key}={value}" for key, value in profile.parameters)
    return (SANDBOX_EXEC, "-p", profile.text, *values, "--", *argv)


def profile(
    bound: Bound, seen: Seen, *, loopback_ports: tuple[int, ...] = (), managed: bool = False
) -> SeatbeltProfile:
    """The profile that enforces `bound`.

    With `loopback_ports`, or with `managed`, those ports of this machine are all of the network that
    can be reached, whatever the policy says; if none of them is a port, nothing is.

    Raises:
        SandboxUnavailable: no profile could enforce it; nothing may be run.
    """
    plan_for(bound, seen)  # for what it refuses
    _refuse_linked_roots(bound, seen)
    kinds = {sight.real: sight.found for sight in seen.sights.values()}
    settled = _settled(bound, seen, kinds)
    values = _Parameters()
    sections = (
        BASE,
        *_reading(settled, seen, kinds, values),
        *_writing(settled, _protected_names(bound, seen, settled), kinds, values),
        *_network(settled, tuple(loopback_ports), managed=managed or bool(loopback_ports)),
        *((PREFERENCES,) if settled.full_read else ()),
        *((PLATFORM,) if settled.minimal else ()),
        *_patterns(settled),
        *_ancestors(settled, values),
    )
    made = SeatbeltProfile("\n".join(sections) + "\n", tuple(values.named.items()))
    if sum(len(word.encode("utf-8", "surrogateescape")) for word in command(made, ())) > MAX_PROFILE_BYTES:
        raise SandboxUnavailable(
            "the policy is too long for a sandbox of this platform",
            remedy="use fewer rules, or patterns with fewer alternatives",
        )
    return made


class _Parameters:
    """The values that the text refers to, in the order of their appearance."""

    def __init__(self) -> None:
        self.named: dict[str, str] = {}

    def filter(self, kind: str, key: str, path: str) -> str:
        """A filter on a path that the text knows only by `key`."""
        self.named[key] = path
        return f'({kind} (param "{key}"))'

    def outside(self, key: str, path: str) -> str:
        """A filter on everything but this path and all below it."""
        return " ".join(f"(require-not {self.filter(kind, key, path)})" for kind in ("literal", "subpath"))


def _refuse_linked_roots(bound: Bound, seen: Seen) -> None:
    for each in () if bound.full_write else bound.rules:
        if each.access is not Access.WRITE:
            continue
        deep = next((link for link in seen.sights[each.path].links if depth(link.at) > 1), None)
        if deep is not None:
            raise SandboxUnavailable(
                f"the writable root {each.path} leads through the symbolic link {deep.at}, "
                "which the sandbox of this platform does not follow",
                remedy=f"name the path that {deep.at} leads to instead",
            )


def _settled(bound: Bound, seen: Seen, kinds: _Kinds) -> Bound:
    """On real paths, with the directories of this platform, without what would show something missing.

    Patterns go into the profile as they are; only a link that one matches must be followed beforehand.
    """
    settled = settle(
        bound, replace(seen, matches=tuple(match for match in seen.matches if match.sight.links))
    )

    def useful(each: BoundRule) -> bool:
        missing = each.access is Access.READ and kinds.get(each.path) is Found.MISSING
        return not missing or settled.access_at(parent(each.path)) is not Access.DENY

    kept = [each for each in settled.rules if useful(each)]
    if settled.minimal:
        asked = Rule(Special(Place.MINIMAL), Access.READ)
        said = [settled.decide(path) for path in PLATFORM_ROOTS]
        kept += (
            BoundRule(path, Access.READ, asked, skip_missing=True)
            for path, decided in zip(PLATFORM_ROOTS, said, strict=True)
            if decided is None or (decided.path == "/" and decided.access is Access.DENY)
        )
    return replace(settled, rules=tuple(kept))


def _reading(settled: Bound, seen: Seen, kinds: _Kinds, values: _Parameters) -> Iterator[str]:
    head = "allow file-read* file-map-executable"
    if settled.full_read:
        yield rule(head)
        return
    paths = _sorted(each.path for each in settled.rules)
    denied = [path for path in paths if settled.access_at(path) is Access.DENY]
    roots = [
        path
        for path in paths
        if path not in denied and (path == "/" or settled.access_at(parent(path)) is Access.DENY)
    ]
    if not roots:
        return
    yield "; what may be read"
    yield rule(
        head, [_root(f"READABLE_ROOT_{n}", path, denied, kinds, values) for n, path in enumerate(roots)]
    )
    links = {link.at for sight in seen.sights.values() if sight.real in roots for link in sight.links}
    steps = links | {above for path in (*roots, *links) for above in _above(path)}
    hidden = _sorted(path for path in steps if settled.access_at(path) is Access.DENY)
    if hidden:
        yield "; the way there, without a look around"
        filters = [values.filter("literal", f"READABLE_WAY_{n}", path) for n, path in enumerate(hidden)]
        yield rule("allow file-read-metadata", filters)


def _writing(
    settled: Bound, names: Mapping[str, list[str]], kinds: _Kinds, values: _Parameters
) -> Iterator[str]:
    if settled.full_write:
        yield rule("allow file-write*", ('(regex #"^/")',))
        return
    roots = settled.writable_roots()
    if not roots:
        return
    filters, kept = [], []
    for number, root in enumerate(roots):
        key = f"WRITABLE_ROOT_{number}"
        metadata = (seatbelt_regex.metadata(root.path, each) for each in names.get(root.path, ()))
        also = [f'(require-not (regex #"{regex}"))' for regex in metadata]
        filters.append(_root(key, root.path, root.read_only, kinds, values, also))
        if kinds.get(root.path) is not Found.FILE:
            kept.append(values.filter("literal", key, root.path))
    yield "; what may be written"
    yield rule("allow file-write*", filters)
    if kept:
        yield "; a writable directory itself stays where it is"
        yield rule("deny file-write-unlink", kept)


def _root(
    key: str, path: str, excluded: Iterable[str], kinds: _Kinds, values: _Parameters, also: Iterable[str] = ()
) -> str:
    """A filter on the path and all below it, save what is excluded."""
    kind = "literal" if kinds.get(path) is Found.FILE else "subpath"
    own = values.filter(kind, key, path)
    if kind == "literal":
        return own
    below = [each for each in _sorted(excluded) if each != path and within(each, path)]
    tops = [each for each in below if not any(each != other and within(each, other) for other in below)]
    but = [values.outside(f"{key}_EXCLUDED_{number}", each) for number, each in enumerate(tops)]
    but += also
    return "\n    ".join((f"(require-all {own}", *but)) + ")" if but else own


def _protected_names(bound: Bound, seen: Seen, settled: Bound) -> dict[str, list[str]]:
    """Per writable root, the metadata that no rule makes writable; also where the root is still missing."""
    lifted = {each.path for each in settled.rules if each.access is Access.WRITE}
    names: dict[str, list[str]] = {}
    for each in bound.rules:
        root = None if each.protects is None else seen.sights[each.protects]
        if root is None or join(root.real, name(each.path)) in lifted:
            continue
        names.setdefault(root.real, []).append(name(each.path))
    return names


def _network(settled: Bound, ports: tuple[int, ...], *, managed: bool) -> Iterator[str]:
    if managed:
        usable = [port for port in dict.fromkeys(ports) if 0 < port < 1 << 16]
        if usable:
            yield "; of the network only these ports of this machine"
            yield rule("allow network-outbound", (f'(remote ip "localhost:{port}")' for port in usable))
            yield NETWORK_SERVICES
    elif settled.network is Network.ON:
        yield "; the network"
        yield from (rule(f"allow network-{way}") for way in ("outbound", "inbound", "bind"))
        yield NETWORK_SERVICES


def _patterns(settled: Bound) -> Iterator[str]:
    patterns = [glob.pattern for glob in settled.globs]
    if patterns:
        yield "; what a pattern denies, now or later"
        matched = [f'(regex #"{seatbelt_regex.denied(pattern)}")' for pattern in patterns]
        yield rule("deny file-read* file-write* file-map-executable", matched)
    above = dict.fromkeys(regex for pattern in patterns for regex in seatbelt_regex.ancestors(pattern))
    if above:
        yield "; directories that may hold such a thing stay where they are"
        filters = [f'(require-all (vnode-type DIRECTORY) (regex #"{regex}"))' for regex in above]
        yield rule("deny file-write-unlink", filters)


def _ancestors(settled: Bound, values: _Parameters) -> Iterator[str]:
    """Directories that a rule or a pattern depends on, where the command could rename them."""
    roots = [root.path for root in settled.writable_roots()]
    fixed = [path for root in settled.writable_roots() for path in root.read_only]
    fixed += (
        join(glob.pattern.root, "*") if glob.pattern.tail else glob.pattern.root for glob in settled.globs
    )
    above = {each for path in fixed for each in _above(path)} - {"/", *roots}
    kept = _sorted(path for path in above if settled.access_at(path) is Access.WRITE)
    if kept:
        yield "; directories on the way to what is protected stay where they are"
        filters = [values.filter("literal", f"PROTECTED_ANCESTOR_{n}", path) for n, path in enumerate(kept)]
        yield rule("deny file-write-unlink", filters)


def _above(path: str) -> Iterator[str]:
    """Every directory above it, down from its parent."""
    while path != "/":
        path = parent(path)
        yield path


def _sorted(paths: Iterable[str]) -> list[str]:
    """Each once, shallow before deep."""
    return sorted(set(paths), key=lambda path: (depth(path), path))
