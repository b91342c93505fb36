"""Turn a plan into Landlock's grants; and the rights that Landlock knows. Pure module.

Landlock's rights add up downwards: the rights of a directory hold for everything below it. So a path with
less access than the directory around it can only be excluded by not granting that directory. Its entries are
granted one by one instead, as they are when the command starts. The directory itself gets only rights that
may reach everything below it. This makes nothing possible that the plan forbids. It has three costs: nothing
can be created, renamed or removed directly in such a directory; an entry added later has no more rights than
the directory; and a directory above a hidden one cannot be listed.

Names that must stay absent are not enforced: as with mounts, what appears is moved aside when the command
has ended. Otherwise no temporary directory could be used.

In degraded mode, a read-only path below a writable one can be written, and directories above something
hidden can be listed.

We ask for named rights, never for all that the kernel has: a newer kernel must not change what a policy
means. So an ABI that we do not know is treated as the newest one that we know.

The launcher imports this.
"""

from holdfast.light import Callable, Final, Iterator, NamedTuple, Sequence
from holdfast.sandbox.plan.plan import MASKS, Base, Plan, Step, StepKind

# linux/landlock.h
EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_CHAR: Final = 1 << 6
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SOCK: Final = 1 << 9
MAKE_FIFO: Final = 1 << 10
MAKE_BLOCK: Final = 1 << 11
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15
RESOLVE_UNIX: Final = 1 << 16
_SCOPE_ABSTRACT_UNIX: Final = 1 << 0
SCOPE_SIGNAL: Final = 1 << 1

NEWEST_KNOWN_ABI: Final = 9
REFER_ABI: Final = 2  # before it, no file could be moved between directories inside a domain
TRUNCATE_ABI: Final = 3  # before it, the owner of a file can truncate it, wherever it is
SCOPE_ABI: Final = 6
UNIX_ABI: Final = 9

_ADDED: Final = (  # ABI -> what it added
    (1, (1 << 13) - 1),
    (REFER_ABI, REFER),
    (TRUNCATE_ABI, TRUNCATE),
    (5, IOCTL_DEV),
    (UNIX_ABI, RESOLVE_UNIX),
)
_FOR_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX

LIST: Final = READ_DIR
READ: Final = READ_FILE | READ_DIR | EXECUTE
DEVICES: Final = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
WRITE: Final = (
    READ
    | WRITE_FILE
    | TRUNCATE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
)
EVERYTHING: Final = (1 << 17) - 1

Grant = tuple[str, int]

MAX_GRANTS: Final = 4096  # each takes four system calls: more would take longer than most commands

TERMINAL: Final = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
_MEMORY: Final = READ_FILE | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE
_DEVICES: Final = "/dev"
_PROCESSES: Final = "/proc"
_NEEDED: Final[tuple[Grant, ...]] = (  # by every command
    *((f"{_DEVICES}/{name}", TERMINAL) for name in ("null", "zero", "full", "random", "urandom", "tty")),
    (f"{_DEVICES}/shm", _MEMORY),
    (_PROCESSES, READ_FILE | READ_DIR),
)
_TERMINALS: Final[tuple[Grant, ...]] = ((f"{_DEVICES}/ptmx", TERMINAL), (f"{_DEVICES}/pts", TERMINAL | LIST))


class TooManyGrants(Exception):
    """A directory around something protected or hidden has too many entries."""


class _Mark(NamedTuple):
    """The rights from a path on; a directory above it may have no more than `ceiling`."""

    rights: int
    ceiling: int


_MARKS: Final = {
    StepKind.READABLE: _Mark(READ, READ),
    StepKind.READ_ONLY: _Mark(READ, READ),
    StepKind.WRITABLE: _Mark(WRITE, EVERYTHING),
    StepKind.MASK_DIRECTORY: _Mark(0, 0),
    StepKind.MASK_FILE: _Mark(0, LIST),  # a file has no entries to list
}
_LISTABLE: Final = _Mark(0, LIST)
_READABLE_ALREADY: Final = _Mark(0, READ)


def grants(plan: Plan, children: Callable[[str], Sequence[str]], *, degraded: bool) -> list[Grant]:
    """The grants of a plan; `children` returns the names in a directory.

    A name that is a symbolic link needs no grant.

    Raises:
        TooManyGrants: there would be more than `MAX_GRANTS`.
    """
    if plan.base is Base.UNTOUCHED:
        return [("/", EVERYTHING)]
    marks = _marks(plan, degraded=degraded)
    ceilings = _ceilings(marks)
    found = [*_NEEDED, *(_TERMINALS if degraded else ())]
    for path, mark in marks.items():
        for grant in _spread(path, mark.rights, 0, marks, ceilings, children):
            if len(found) >= MAX_GRANTS:
                raise TooManyGrants(grant[0])
            found.append(grant)
    return found


def read_around(plan: Plan, children: Callable[[str], Sequence[str]]) -> list[Grant]:
    """Grants of reading for a second layer, which holds where a mask is gone.

    The host may replace what a mask covers. A path hidden outside of the writable roots is excluded: instead
    of the directory around it, the entries beside it are granted, as they are now. So an entry made later
    cannot be read. Listing is left to the masks.

    Raises:
        TooManyGrants: there would be more than `MAX_GRANTS`.
    """
    roots = [step.path for step in plan.steps if step.kind is StepKind.WRITABLE]
    masks = [step.path for step in plan.steps if step.kind in MASKS]
    hidden = {
        path for path in masks if not any(f"{path}/".startswith(f"{_join(root, '')}") for root in roots)
    }
    if not hidden:
        return [("/", READ)]
    above = {folder for path in hidden for folder in _ancestors(path)}
    found: list[Grant] = [("/", LIST)]
    for folder in sorted(above):
        if hidden.isdisjoint((folder, *_ancestors(folder))):
            beside = (_join(folder, name) for name in children(folder))
            found += ((path, READ) for path in beside if path not in above | hidden and not _own(path))
        if len(found) > MAX_GRANTS:
            raise TooManyGrants(folder)
    return found


def find_closed(plan: Plan, *, degraded: bool) -> tuple[str, ...]:
    """Writable directories in which nothing can be created, renamed or removed directly."""
    return _short_of(WRITE & ~READ, plan, degraded=degraded)


def find_unlisted(plan: Plan, *, degraded: bool) -> tuple[str, ...]:
    """Readable directories that cannot be listed."""
    return _short_of(LIST, plan, degraded=degraded)


def _spread(
    path: str,
    rights: int,
    inherited: int,
    marks: dict[str, _Mark],
    ceilings: dict[str, int],
    children: Callable[[str], Sequence[str]],
) -> Iterator[Grant]:
    """Grant these rights on a path as far as they may reach below it, and the rest on its entries."""
    safe = rights & ceilings.get(path, EVERYTHING)
    if safe & ~inherited:
        yield path, safe
    if safe == rights:
        return
    for name in children(path):
        below = _join(path, name)
        if below not in marks:
            yield from _spread(below, rights, safe | inherited, marks, ceilings, children)


def _marks(plan: Plan, *, degraded: bool) -> dict[str, _Mark]:
    marks = {"/": _MARKS[StepKind.READABLE] if plan.base is Base.HOST else _LISTABLE}
    for step in plan.steps:
        if step.kind is not StepKind.PIN and not _own(step.path):
            marks[step.path] = _mark(step, degraded=degraded)
    if degraded:
        given_up = [step.path for step in plan.steps if step.kind is StepKind.READ_ONLY]
        marks = {path: mark for path, mark in marks.items() if path not in given_up}
    # Of these the command always gets exactly what it needs, whatever the steps say.
    return {**marks, _DEVICES: _LISTABLE, _PROCESSES: _READABLE_ALREADY}


def _mark(step: Step, *, degraded: bool) -> _Mark:
    if degraded and step.kind is StepKind.MASK_DIRECTORY:
        return _LISTABLE
    return _MARKS[step.kind]


def _ceilings(marks: dict[str, _Mark]) -> dict[str, int]:
    """For every directory with a mark below it, the rights that do not reach too far."""
    ceilings: dict[str, int] = {}
    for path, mark in marks.items():
        while path != "/":
            path = _parent(path)
            ceilings[path] = ceilings.get(path, EVERYTHING) & mark.ceiling
    return ceilings


def _short_of(wanted: int, plan: Plan, *, degraded: bool) -> tuple[str, ...]:
    """Directories whose entries have a right that the directories lack."""
    if plan.base is Base.UNTOUCHED:
        return ()
    marks = _marks(plan, degraded=degraded)
    return tuple(
        sorted(
            path
            for path, ceiling in _ceilings(marks).items()
            if _nearest(marks, path).rights & wanted & ~ceiling
        )
    )


def _nearest(marks: dict[str, _Mark], path: str) -> _Mark:
    while path not in marks:
        path = _parent(path)
    return marks[path]


def _own(path: str) -> bool:
    return f"{path}/".startswith((f"{_DEVICES}/", f"{_PROCESSES}/"))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _ancestors(path: str) -> list[str]:
    """All directories above, including the root."""
    found = []
    while path != "/":
        path = _parent(path)
        found.append(path)
    return found


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def list_handled(abi: int, *, unix: bool) -> int:
    """The file-system rights that this ABI can withhold; with `unix` also connecting to sockets by path."""
    rights = 0
    for since, added in _ADDED:
        if since <= abi:
            rights |= added
    return rights if unix else rights & ~RESOLVE_UNIX


def list_scoped(abi: int) -> int:
    """The scopes for signals and abstract unix sockets, if the ABI has them."""
    return _SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL if abi >= SCOPE_ABI else 0


def limit_rights(rights: int, handled: int, *, directory: bool) -> int:
    """These rights as a rule may name them: only handled rights; on a file only rights for files."""
    return rights & handled & (~0 if directory else _FOR_FILES)
