"""Grants against a model of Landlock: a path may what it and all directories above it were granted."""

from collections.abc import Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox.plan.grants import LIST, READ, WRITE, grants, limit_rights
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind

ALLOWED = {None: 0, "read": READ, "write": WRITE}
CHANGING = WRITE & ~READ
ALL = ~0

Tree = dict[str, "Tree | None"]  # a directory, or None for a file
NAMES = st.sampled_from(["a", "b", "c"])
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.dictionaries(NAMES, st.none(), max_size=3),
    lambda inner: st.dictionaries(NAMES, st.one_of(st.none(), inner), max_size=3),
    max_leaves=12,
)


def paths(tree: Mapping[str, "Tree | None"], top: str = "") -> Iterator[tuple[str, bool]]:
    for name, below in tree.items():
        yield f"{top}/{name}", below is not None
        yield from paths(below or {}, f"{top}/{name}")


def above(path: str) -> list[str]:
    """The path and every directory above it, nearest first."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:end]) for end in range(len(parts), 0, -1)] + ["/"]


def nearest(table: Mapping[str, str | None], path: str) -> str | None:
    return next(table[at] for at in above(path) if at in table)


def steps(table: Mapping[str, str | None], folders: Mapping[str, bool]) -> Iterator[Step]:
    for path in sorted(table, key=lambda path: (path.count("/"), path)):
        around, here = nearest(table, path.rpartition("/")[0] or "/"), table[path]
        if path == "/" or here == around:
            continue
        if here is None:
            yield Step(StepKind.MASK_DIRECTORY if folders[path] else StepKind.MASK_FILE, path)
        elif here == "write":
            yield Step(StepKind.WRITABLE, path)
        else:
            yield Step(StepKind.READ_ONLY if around == "write" else StepKind.READABLE, path)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[dict[str, bool], dict[str, str | None], Plan]:
    tree = draw(TREES)
    folders = dict(paths(tree))
    table = {"/": draw(st.sampled_from(["read", None]))}
    if folders:
        chosen = st.dictionaries(st.sampled_from(sorted(folders)), st.sampled_from(sorted(ALLOWED, key=str)))
        table |= draw(chosen)
    base = Base.HOST if table["/"] else Base.EMPTY
    return folders, table, Plan(base, tuple(steps(table, folders)), network_off=True, cwd="/")


def may(plan: Plan, folders: dict[str, bool], *, degraded: bool) -> dict[str, int]:
    """What Landlock allows at every path."""
    children: dict[str, list[str]] = {}
    for path in folders:
        children.setdefault(path.rpartition("/")[0] or "/", []).append(path.rpartition("/")[2])
    granted: dict[str, int] = {}
    for path, rights in grants(plan, lambda path: children.get(path, []), degraded=degraded):
        granted[path] = granted.get(path, 0) | rights
    return {
        path: limit_rights(
            _union(
                limit_rights(granted.get(at, 0), ALL, directory=folders.get(at, True)) for at in above(path)
            ),
            ALL,
            directory=folder,
        )
        for path, folder in {**folders, "/": True}.items()
    }


def _union(rights: Iterator[int]) -> int:
    total = 0
    for one in rights:
        total |= one
    return total


@given(scenes())
def test_never_more_than_the_plan_allows_and_all_of_it_where_nothing_is_spared(
    scene: tuple[dict[str, bool], dict[str, str | None], Plan],
) -> None:
    folders, table, plan = scene
    found = may(plan, folders, degraded=False)
    for path, folder in folders.items():
        allowed = limit_rights(ALLOWED[nearest(table, path)], ALL, directory=folder)
        below = [ALLOWED[nearest(table, other)] for other in folders if other.startswith(f"{path}/")]
        assert found[path] & ~allowed == 0
        if all(other & allowed == allowed for other in below):
            assert found[path] == allowed
        elif any(other & WRITE != WRITE for other in below):
            assert found[path] & CHANGING == 0, "an ancestor of something protected could be changed"


@given(scenes())
def test_degraded_what_is_hidden_stays_unread_and_what_was_readable_stays_unwritten(
    scene: tuple[dict[str, bool], dict[str, str | None], Plan],
) -> None:
    folders, table, plan = scene
    given_up = {step.path for step in plan.steps if step.kind is StepKind.READ_ONLY}
    table = {path: access for path, access in table.items() if path not in given_up}
    found = may(plan, folders, degraded=True)
    for path, folder in folders.items():
        access = nearest(table, path)
        allowed = limit_rights(ALLOWED[access] | (0 if access else LIST), ALL, directory=folder)
        assert found[path] & ~allowed == 0
