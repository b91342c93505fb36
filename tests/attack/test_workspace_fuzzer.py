"""Whatever lies in a workspace, no reader of ours raises, waits, follows it out, or keeps a slot for it."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pytest

from holdfast.agents.changes import changes, manifest
from holdfast.agents.changes.git import Git, Repository, find_repository
from holdfast.agents.changes.manifest import Changes, Manifest
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.run import workspace
from holdfast.dispatch.run.run import RunMark
from holdfast.errors import HoldfastError, OperationFailed, UsageError
from holdfast.handoff import envelope, outbox
from holdfast.handoff.envelope import Envelope, Grant, HandoffAnswer
from holdfast.local.trees import remove_tree
from tests.support.fakes import Act, Scene
from tests.support.git_traps import git
from tests.support.jumping import JumpingLoop
from tests.support.patience import patient
from tests.support.plain_git import PlainGit
from tests.support.tiers import DEEP, sizes
from tests.support.workspace_trees import SECRET, Victim, grow

MOST_S: Final = 5.0  # of processor time, for all that is done with one tree
PART_S: Final = patient(900.0)  # for a thousand trees, on a machine that does much else
GRANT: Final = Grant(board="b", task="t", run="r", generation=1, token="x", socket="", outbox="", command=[])


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": JumpingLoop}


@dataclass
class Ground:
    """A place to grow trees on, beside what must not be touched."""

    place: Path
    victim: Victim
    git: Git
    repository: Repository
    base: str


@pytest.fixture
def plot() -> Iterator[Path]:
    """A directory of its own, in memory where that can be: thousands of trees are made and removed.

    It is outside of pytest's, and emptied by programs that are used to depth and closed directories: what a
    test that fails leaves behind must not be in the way of anybody's own removal.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="trees-", dir=memory)
    try:
        yield Path(folder)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", folder], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def ground(plot: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr(changes, "MAX_ENTRIES", 300)
    monkeypatch.setattr(changes, "MAX_IN_TREE", 300)
    monkeypatch.setattr(changes, "MAX_GLANCED", 300)
    source, home, place = plot / "source", plot / "home", plot / "w"
    for made in (source, home, place):
        made.mkdir()
    for name in ("f1", "f2", "a.txt", ".gitattributes"):
        (source / name).write_text("*.txt text eol=crlf\n", "utf-8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git(source, *words)
    base = git(source, "rev-parse", "HEAD").strip()
    made_git = PlainGit.of(home, str(plot / "nobody"))
    return Ground(place, Victim(plot), made_git, find_repository(str(source)), base)


def spent_s() -> float:
    """Processor time of ours and of programs that have ended: on a busy machine the clock says nothing.

    Whoever waits for ever spends none of it, and is ended by pytest's bound on a test.
    """
    return sum(os.times()[:4])


@dataclass
class Stopwatch:
    """What each reader took at most, and for which seed."""

    seed: int = -1
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)

    @contextlib.contextmanager
    def time(self, reader: str) -> Iterator[None]:
        begun = spent_s()
        yield
        taken = (spent_s() - begun, self.seed)
        self.slowest[reader] = max(taken, self.slowest.get(reader, taken))


async def read_all(ground: Ground, watch: Stopwatch, *, diff: bool) -> list[bytes]:
    """Everything that a dispatcher and a page make of a workspace; what they would store or show of it."""
    place = ground.place
    shown: list[bytes] = []
    with watch.time("outbox"):
        with contextlib.suppress(OperationFailed):
            outbox.lay_out(place, GRANT)
        outbox.ingest(place, refuse)
    with watch.time("manifest"):
        before = changes.look(place)
        mark = msgspec.json.encode(RunMark("r", before, before))
        assert msgspec.json.decode(mark, type=RunMark).before == before
        changes.glance(place)
        seen = [manifest.compare(Manifest(), before), manifest.compare(before, changes.look(place))]
    if diff:
        with watch.time("diff"):
            since = await changes.since_commit(ground.git, ground.repository, place, ground.base, ("f3",))
        seen.append(since)
    with watch.time("page"):
        shown += map(as_stored, seen)
    with watch.time("worktree"):
        with contextlib.suppress(HoldfastError):
            find_repository(str(place))
        names = [os.fsdecode(name) for name in os.listdir(os.fsencode(place))]
        workspace.find_absent(place, [*names, "f1/x", "loop/../x"])
    fresh = ground.git.home / "fresh"
    fresh.mkdir()
    with watch.time("copies"):
        with contextlib.suppress(OperationFailed):
            found = workspace.find_missing(place, fresh, (".env*", "f*", "*/f*"))
            msgspec.json.encode(found)
            workspace.copy_files(place, fresh, found)
        with contextlib.suppress(OperationFailed):
            workspace.put(place, b"task", "TASK.md")
    shown += [path.read_bytes() for path in fresh.rglob("*") if path.is_file() and not path.is_symlink()]
    remove_tree(fresh)
    return shown


def as_stored(seen: Changes) -> bytes:
    for path in seen.paths:
        assert path.isprintable(), path
    return msgspec.json.encode({"paths": seen.paths, "count": seen.count}) + seen.diff.encode()


def refuse(letter: Envelope) -> HandoffAnswer:
    return envelope.refusal(letter.id, UsageError("no"))


PARTS: Final = [
    pytest.param(range(200), id="quick"),
    *(
        pytest.param(range(at, at + 1_000), id=f"from {at}", marks=[DEEP, pytest.mark.timeout(PART_S)])
        for at in range(0, 10_000, 1_000)
    ),
]


@pytest.mark.parametrize("seeds", PARTS)
async def test_no_tree_harms_its_readers(
    ground: Ground, seeds: range, record_property: Callable[[str, object], None]
) -> None:
    watch = Stopwatch()
    every = 1 if len(seeds) > 200 else 4  # git is started for so many of them: that takes longest
    for seed in seeds:
        ground.place.mkdir(exist_ok=True)
        grow(seed, ground.place, ground.victim)
        ground.victim.check()
        watch.seed, begun = seed, spent_s()
        try:
            shown = await read_all(ground, watch, diff=seed % every == 0)
            took = spent_s() - begun
            assert took < MOST_S, f"it takes {took:.1f} s"
            assert not any(SECRET.encode() in text for text in shown), "a link was followed"
            ground.victim.check()
            with watch.time("removal"):
                remove_tree(ground.place)
            ground.victim.check()
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {type(exc).__name__}: {exc}") from exc
    record_property("hostile trees", len(seeds))
    for reader, (took, seed) in watch.slowest.items():
        record_property(f"tree to {reader}", [round(took * 1000), seed])  # the largest of all parts is kept


@sizes("count", quick=6, deep=200)
async def test_no_tree_keeps_a_slot(ground: Ground, plot: Path, count: int) -> None:
    home = plot / "board"
    home.mkdir()
    seeds = itertools.count()
    project = ground.place
    scene = Scene(home, lambda _wish: Act(does=lambda _: grow(next(seeds), project, ground.victim)))
    for _ in range(count):
        project.mkdir(exist_ok=True)
        task = scene.create(workspace_kind="dir", workspace=str(project), max_attempts=1)
        async with asyncio.timeout(3600.0):
            await scene.dispatch(once=True, most=1)
        assert scene.task(task).status in (TaskStatus.DONE, TaskStatus.FAILED)
        assert scene.told[-1] == ("ended", task.id)
        ground.victim.check()
        remove_tree(project)


def test_the_control_gets_out(plot: Path) -> None:
    """Whoever follows what lies there reads what is not in there, and waits for ever, and raises."""
    victim, place = Victim(plot), plot / "w"
    place.mkdir()
    found: set[str] = set()
    for seed in range(15):
        grow(seed, place, victim)
        for path in place.glob("*"):
            with contextlib.suppress(OSError):
                if (
                    path.is_file()
                    and path.stat().st_size < 1000
                    and SECRET in path.read_text("utf-8", "replace")
                ):
                    found.add("secret")
            with contextlib.suppress(OSError):
                if path.is_fifo():
                    found.add("pipe")
            try:
                str(path).encode()
            except UnicodeEncodeError:
                found.add("name")
        remove_tree(place)
        place.mkdir()
    assert found == {"secret", "pipe", "name"}
