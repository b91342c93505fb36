"""Turn a bound policy and a snapshot of the disk into a plan. Pure module.

Everything is decided on real paths. A rule reached through a symbolic link that the command could replace is
refused: the link could lead elsewhere for the next command. Directories above something protected or hidden
are pinned for the same reason: if one were renamed, the rule would no longer match.
"""

from holdfast.errors import SandboxUnavailable
from holdfast.light import Enum, Final, Iterable, Mapping, replace, value
from holdfast.sandbox.plan.plan import Base, Plan, PlanLink, Step, StepKind
from holdfast.sandbox.policy.paths import depth, parent, within
from holdfast.sandbox.policy.policy import Access, BoundGlob, BoundPolicy, BoundRule, Network, Place, Special


class FoundKind(Enum):
    MISSING = "missing"
    OUT_OF_SIGHT = "out of sight"  # a directory on the way may not be searched by us
    FILE = "file"  # anything that is not a directory
    DIRECTORY = "directory"


@value
class Crossing:
    """A symbolic link on the way: its real location, and its target text."""

    at: str
    target: str


@value
class Sight:
    """The real path that a path leads to. The missing part is appended as written."""

    real: str
    found: FoundKind
    links: tuple[Crossing, ...] = ()
    names: int = 1  # hard links of a file

    @property
    def exists(self) -> bool:
        return self.found in (FoundKind.FILE, FoundKind.DIRECTORY)


@value
class PatternMatch:
    """A path that a deny pattern matches; a link is masked at its target."""

    glob: BoundGlob
    path: str
    sight: Sight


@value
class GitDir:
    """The directory that a protected `.git` file points to, or the common directory of that one."""

    pointer: str
    path: str


_NONE: Final[Mapping[str, Sight]] = {}


@value
class DiskSnapshot:
    """What was seen on the disk.

    `sights` has every path of the bound rules, the roots of patterns, and the git directories.
    """

    cwd: str
    sights: Mapping[str, Sight] = _NONE
    matches: tuple[PatternMatch, ...] = ()
    gitdirs: tuple[GitDir, ...] = ()


_REFUSED: Final = {Access.READ: "read-only", Access.WRITE: "writable", Access.DENY: "deny-read"}


def settle(bound: BoundPolicy, seen: DiskSnapshot) -> BoundPolicy:
    """The policy on real paths, with git directories and pattern matches; query it with real paths."""
    if bound.full_write:
        return bound
    rules = [_move(rule, seen) for rule in _effective(_add_git_rules(bound, seen), seen)]
    masks = {match.sight.real: match.glob.origin for match in seen.matches if match.sight.exists}
    kept = [rule for rule in rules if not _is_covered(rule.path, masks)]
    kept += (BoundRule(path, Access.DENY, origin) for path, origin in masks.items())
    globs = (
        replace(glob, pattern=replace(glob.pattern, root=seen.sights[glob.pattern.root].real))
        for glob in bound.globs
    )
    return replace(bound, rules=tuple(kept), globs=tuple(globs))


def plan_for(bound: BoundPolicy, seen: DiskSnapshot) -> Plan:
    """The operations that enforce `bound`.

    Raises:
        SandboxUnavailable: no operations could enforce it; nothing may be run.
    """
    network_off = bound.network is Network.OFF
    if bound.full_write:
        return Plan(Base.UNTOUCHED, (), network_off, seen.cwd)
    named = _add_git_rules(bound, seen)
    rules = _effective(named, seen)
    table = _table((rule for rule in rules if seen.sights[rule.path].exists), seen)
    _refuse_replaceable_links(bound, seen, named, table)
    _refuse_unseen(bound, seen, rules, table)
    _hide_matches(seen, table)
    if table.get("/") is Access.DENY:
        del table["/"]  # no mask is needed: an empty base does the same
    base = Base.HOST if "/" in table else Base.EMPTY
    kinds = {sight.real: sight.found for sight in (*seen.sights.values(), *(m.sight for m in seen.matches))}
    steps = _steps(table, kinds)
    return Plan(
        base,
        (*_pins(steps, table), *steps),
        network_off,
        seen.cwd,
        _absent(seen, rules, table),
        _later(seen, rules, table),
        _links(seen, rules, table) if base is Base.EMPTY else (),
        open_names=_open_names(bound, seen),
    )


def _open_names(bound: BoundPolicy, seen: DiskSnapshot) -> tuple[str, ...]:
    """Warnings about denied files that have other names, which no rule covers."""
    denied = {seen.sights[rule.path] for rule in bound.rules if rule.access is Access.DENY}
    denied |= {match.sight for match in seen.matches}
    return tuple(
        f"{sight.real} is denied by this name; the file has other names (hard links)"
        for sight in sorted(denied, key=lambda sight: sight.real)
        if sight.found is FoundKind.FILE and sight.names > 1
    )


def _add_git_rules(bound: BoundPolicy, seen: DiskSnapshot) -> list[BoundRule]:
    """The rules, plus rules for the directories behind a `.git` file."""
    metadata = {rule.path: rule for rule in bound.rules if rule.protects is not None}
    return [*bound.rules, *(replace(metadata[found.pointer], path=found.path) for found in seen.gitdirs)]


def _effective(named: list[BoundRule], seen: DiskSnapshot) -> list[BoundRule]:
    """The rules without those of our own (metadata, platform) that conflict with explicit ones.

    Our own rules must neither widen nor narrow an explicit rule; on real paths they might.
    """
    platform = Special(Place.MINIMAL)
    explicit = [rule for rule in named if rule.protects is None and rule.origin.target != platform]
    table = _table((rule for rule in explicit if seen.sights[rule.path].exists), seen)
    spoken = {path: access for path, access in table.items() if path != "/"}

    def holds(rule: BoundRule) -> bool:
        real = seen.sights[rule.path].real
        if rule.protects is not None:
            return _nearest(table, real) is Access.WRITE
        return rule.origin.target != platform or not _is_covered(real, spoken)

    return [rule for rule in named if holds(rule)]


def _move(rule: BoundRule, seen: DiskSnapshot) -> BoundRule:
    protects = None if rule.protects is None else seen.sights[rule.protects].real
    return replace(rule, path=seen.sights[rule.path].real, protects=protects)


def _table(rules: Iterable[BoundRule], seen: DiskSnapshot) -> dict[str, Access]:
    """The access at each real path that a rule names."""
    table: dict[str, Access] = {}
    for rule in rules:
        real = seen.sights[rule.path].real
        table[real] = max(rule.access, table.get(real, rule.access))
    return table


def _nearest(table: Mapping[str, Access], path: str) -> Access:
    """The access at a path: that of the entry for it, or for the nearest directory above."""
    while path not in table:
        if path == "/":
            return Access.DENY
        path = parent(path)
    return table[path]


def _is_covered(path: str, tops: Mapping[str, object]) -> bool:
    while path not in tops:
        if path == "/":
            return False
        path = parent(path)
    return True


def _refuse_replaceable_links(
    bound: BoundPolicy, seen: DiskSnapshot, rules: list[BoundRule], table: Mapping[str, Access]
) -> None:
    def replaceable(sight: Sight) -> Crossing | None:
        return next((at for at in sight.links if _nearest(table, parent(at.at)) is Access.WRITE), None)

    sights = seen.sights
    firm = (r for r in rules if sights[r.path].exists and replaceable(sights[r.path]) is None)
    granted = _table(firm, seen)
    for rule in rules:
        sight = sights[rule.path]
        link = replaceable(sight)
        if link is None:
            continue
        if rule.access is Access.WRITE and (
            not sight.exists or _nearest(granted, sight.real) is Access.WRITE
        ):
            continue  # wherever the link leads, the command gains nothing
        if rule.protects is not None and not sight.exists and sight.links == sights[rule.protects].links:
            continue  # the name is missing, and the link belongs to the root itself
        raise _refuse_crossing(rule.access, rule.path, link)
    for glob in bound.globs:
        if (link := replaceable(sights[glob.pattern.root])) is not None:
            raise _refuse_crossing(Access.DENY, str(glob.pattern), link)


def _refuse_crossing(access: Access, path: str, link: Crossing) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"cannot enforce sandbox {_REFUSED[access]} path {path} "
        f"because it crosses writable symlink {link.at}",
        remedy=f"name the path that {link.at} leads to instead",
    )


def _refuse_unseen(
    bound: BoundPolicy, seen: DiskSnapshot, rules: list[BoundRule], table: Mapping[str, Access]
) -> None:
    """Refuse paths that we cannot inspect: the owner of the directory in the way can open it again."""
    narrowing = [rule.path for rule in rules if rule.access is not Access.WRITE]
    for path in (*narrowing, *(glob.pattern.root for glob in bound.globs)):
        sight = seen.sights[path]
        if sight.found is FoundKind.OUT_OF_SIGHT and _nearest(table, sight.real) is Access.WRITE:
            raise SandboxUnavailable(
                f"cannot enforce what the sandbox says about {path} because it cannot be looked at",
                remedy="make the directories above it searchable",
            )


def _hide_matches(seen: DiskSnapshot, table: dict[str, Access]) -> None:
    """Apply pattern matches, which override every rule: everything below a match is denied too."""
    masks: dict[str, Access] = {}
    for match in seen.matches:
        if match.sight.exists:
            real = match.sight.real
            if match.sight.links and any(within(kept, real) for kept in (seen.cwd, *table)):
                raise SandboxUnavailable(
                    f"cannot enforce the deny pattern {match.glob.pattern}: it matches {match.path}, "
                    f"a link to {real}, which holds what the policy allows",
                    remedy=f"remove the link {match.path}",
                )
            masks[real] = Access.DENY
    for path in [path for path in table if _is_covered(path, masks)]:
        del table[path]
    table |= masks


def _steps(table: Mapping[str, Access], kinds: Mapping[str, FoundKind]) -> list[Step]:
    steps: list[Step] = []
    for path in sorted(table, key=lambda path: (depth(path), path)):
        around = Access.READ if path == "/" else _nearest(table, parent(path))
        here = table[path]
        if here is around:
            continue
        if here is Access.WRITE:
            kind = StepKind.WRITABLE
        elif here is Access.READ:
            kind = StepKind.READ_ONLY if around is Access.WRITE else StepKind.READABLE
        else:
            kind = StepKind.MASK_DIRECTORY if kinds[path] is FoundKind.DIRECTORY else StepKind.MASK_FILE
        steps.append(Step(kind, path))
    return steps


def _pins(steps: list[Step], table: Mapping[str, Access]) -> list[Step]:
    """Directories between a step and the writable path around it: renaming one would undo the step."""
    mounted = {step.path for step in steps}
    pins: set[str] = set()
    for step in steps:
        above = parent(step.path)
        if step.path == "/" or _nearest(table, above) is not Access.WRITE:
            continue
        while above not in mounted and above not in pins:
            pins.add(above)
            above = parent(above)
    return [Step(StepKind.PIN, path) for path in sorted(pins, key=lambda path: (depth(path), path))]


def _absent(seen: DiskSnapshot, rules: list[BoundRule], table: Mapping[str, Access]) -> tuple[str, ...]:
    wanted = _table(rules, seen)
    names: set[str] = set()
    for rule in rules:
        sight = seen.sights[rule.path]
        if sight.found is not FoundKind.MISSING or wanted[sight.real] is Access.WRITE:
            continue
        if rule.protects is None:
            possible = not rule.skip_missing
        else:
            possible = seen.sights[rule.protects].found is FoundKind.DIRECTORY
        if possible and _nearest(table, sight.real) is Access.WRITE:
            names.add(sight.real)
    return tuple(sorted(names))


def _later(seen: DiskSnapshot, rules: list[BoundRule], table: Mapping[str, Access]) -> tuple[str, ...]:
    """Denied paths where nothing exists now, but where a new file would be visible.

    Without those that a policy leaves open while they are missing and that the command itself could create.
    """
    wanted = _table(rules, seen)
    names: set[str] = set()
    for rule in rules:
        sight = seen.sights[rule.path]
        if sight.found is FoundKind.MISSING and wanted[sight.real] is Access.DENY:
            around = _nearest(table, sight.real)
            if around is Access.READ or (around is Access.WRITE and not rule.skip_missing):
                names.add(sight.real)
    return tuple(sorted(names))


def _links(seen: DiskSnapshot, rules: list[BoundRule], table: Mapping[str, Access]) -> tuple[PlanLink, ...]:
    """Links on the way to visible paths that no step shows."""
    return tuple(
        sorted(
            {
                PlanLink(link.at, link.target)
                for rule in rules
                if (sight := seen.sights[rule.path]).exists and _nearest(table, sight.real) is not Access.DENY
                for link in sight.links
                if not _is_covered(parent(link.at), table)
            },
            key=lambda link: link.path,
        )
    )
