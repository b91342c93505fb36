"""fs/watchMissing on a real file system."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.server.files import watch
from holdfast.server.files.watch import MAX_MISSING, MissingWatch
from holdfast.wire.files import WatchMissingParams
from holdfast.wire.paths import PathUri
from tests.support.patience import patient

QUEUE_LIMIT = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())

Act = Callable[[Path], object]


class Client:
    """One connection's watch and what it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.watcher = MissingWatch(self.told.append)

    def watch(self, id_: int, *missing: Path, present: Path | None = None) -> bool:
        uris = [PathUri.from_native(str(path)) for path in missing]
        shown = PathUri.from_native(str(present)) if present is not None else None
        return self.watcher.watch(WatchMissingParams(id_, uris, shown)).watching


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    client.watcher.close()


async def settle() -> None:
    """Let the loop see every event there is: inotify queues them before the change returns."""
    for _ in range(3):
        await asyncio.sleep(0)


def populate(root: Path) -> None:
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "dir" / "sub" / "file").write_text("1")
    (root / "file").write_text("1")
    (root / "spare").write_text("2")
    (root / "link").symlink_to("dir")
    (root / "dangling").symlink_to("nowhere")


def make_and_rename_into_place(root: Path) -> None:
    (root / "spare").rename(root / "absent")


FIRES: dict[str, tuple[str, str | None, Act]] = {
    "a file appears": ("absent", None, lambda root: (root / "absent").write_text("")),
    "a directory appears": ("absent", None, lambda root: (root / "absent").mkdir()),
    "a link appears": ("absent", None, lambda root: (root / "absent").symlink_to("x")),
    "a rename into place": ("absent", None, make_and_rename_into_place),
    "a missing ancestor appears": ("absent/a/b", None, lambda root: (root / "absent").mkdir()),
    "the parent is renamed": ("dir/sub/a", None, lambda root: (root / "dir/sub").rename(root / "x")),
    "a grandparent is renamed": ("dir/sub/a", None, lambda root: (root / "dir").rename(root / "x")),
    "the parent is removed": ("dir/sub/a", None, lambda root: remove_tree(root / "dir/sub")),
    "present is written": ("absent", "file", lambda root: (root / "file").write_text("2")),
    "present is touched": ("absent", "file", lambda root: os.utime(root / "file")),
    "present gets a mode": ("absent", "file", lambda root: (root / "file").chmod(0o600)),
    "present is replaced": ("absent", "file", lambda root: (root / "spare").rename(root / "file")),
    "present is removed": ("absent", "file", lambda root: (root / "file").unlink()),
    "present is moved away": ("absent", "file", lambda root: (root / "file").rename(root / "x")),
    "present moves with its parent": (
        "absent",
        "dir/sub/file",
        lambda root: (root / "dir").rename(root / "x"),
    ),
    "a present directory gets a mode": ("absent", "dir", lambda root: (root / "dir").chmod(0o700)),
    "a present directory is removed": ("absent", "dir/sub", lambda root: remove_tree(root / "dir/sub")),
}

SILENT: dict[str, tuple[str, str | None, Act]] = {
    "another name appears": ("absent", None, lambda root: (root / "absent2").write_text("")),
    "a neighbour is written": ("absent", "file", lambda root: (root / "spare").write_text("3")),
    "a file appears in present": ("absent", "dir", lambda root: (root / "dir/x").write_text("")),
    "a file in present is written": (
        "absent",
        "dir/sub",
        lambda root: (root / "dir/sub/file").write_text(""),
    ),
    "present is also the parent": ("dir/absent", "dir", lambda root: (root / "dir/x").write_text("")),
    "present is read": ("absent", "file", lambda root: (root / "file").read_text()),
}


def remove_tree(path: Path) -> None:
    for entry in path.iterdir():
        entry.unlink()
    path.rmdir()


@pytest.mark.parametrize(("missing", "present", "act"), FIRES.values(), ids=list(FIRES))
async def test_it_fires_once_when(
    client: Client, tmp_path: Path, missing: str, present: str | None, act: Act
) -> None:
    populate(tmp_path)
    assert client.watch(7, tmp_path / missing, present=tmp_path / present if present else None)
    await settle()
    assert client.told == []
    act(tmp_path)
    await settle()
    assert client.told == [7]
    for path in (tmp_path / "absent", tmp_path / "file"):
        path.unlink() if path.is_file() or path.is_symlink() else path.mkdir(exist_ok=True)
    await settle()
    assert client.told == [7]


@pytest.mark.parametrize(("missing", "present", "act"), SILENT.values(), ids=list(SILENT))
async def test_it_stays_silent_when(
    client: Client, tmp_path: Path, missing: str, present: str | None, act: Act
) -> None:
    populate(tmp_path)
    assert client.watch(7, tmp_path / missing, present=tmp_path / present if present else None)
    act(tmp_path)
    await settle()
    assert client.told == []
    (tmp_path / missing).mkdir()
    await settle()
    assert client.told == [7], "it was still armed"


@pytest.mark.parametrize(
    ("missing", "present"),
    [
        ("file", None),
        ("dir", None),
        ("file/below", None),
        ("dangling", None),
        ("dangling/below", None),
        ("link/below", None),
        ("link/sub/below", None),
        ("absent", "absent too"),
        ("absent", "link"),
        ("absent", "dangling"),
        ("absent", "link/sub"),
        ("x" * 300, None),
    ],
)
async def test_it_refuses_what_cannot_be_watched(
    client: Client, tmp_path: Path, missing: str, present: str | None
) -> None:
    populate(tmp_path)
    shown = tmp_path / present if present else None
    assert not client.watch(1, tmp_path / "also absent", tmp_path / missing, present=shown)


async def test_the_root_and_foreign_paths_are_refused(client: Client, tmp_path: Path) -> None:
    root, foreign = PathUri.parse("file:///"), PathUri.parse("file:///C:/x")
    absent = PathUri.from_native(str(tmp_path / "absent"))
    assert not client.watcher.watch(WatchMissingParams(1, [root], root)).watching
    assert not client.watcher.watch(WatchMissingParams(2, [foreign])).watching
    assert not client.watcher.watch(WatchMissingParams(3, [absent], foreign)).watching
    assert client.watcher.watch(WatchMissingParams(4, [absent], root)).watching


async def test_up_to_64_paths_are_watched(client: Client, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(MAX_MISSING)]
    assert not client.watch(1)
    assert not client.watch(2, *paths, tmp_path / "one more")
    assert client.watch(3, *paths)
    paths[-1].mkdir()
    await settle()
    assert client.told == [3]


async def test_a_watch_over_too_many_names_is_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth = len(tmp_path.parts)
    monkeypatch.setattr(watch, "MAX_NAMES", 2 * depth)
    assert client.watch(1, tmp_path / "a", tmp_path / "b")
    assert not client.watch(2, tmp_path / "a", tmp_path / "b", tmp_path / "c")


async def test_ids_must_grow_and_a_stale_one_leaves_the_watch_alone(client: Client, tmp_path: Path) -> None:
    assert not client.watch(0, tmp_path / "a")
    assert client.watch(5, tmp_path / "a")
    assert not client.watch(5, tmp_path / "b")
    assert not client.watch(4, tmp_path / "b")
    (tmp_path / "b").mkdir()
    await settle()
    assert client.told == []
    (tmp_path / "a").mkdir()
    await settle()
    assert client.told == [5]


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_higher_id_discards_the_previous_watch(
    client: Client, tmp_path: Path, accepted: bool
) -> None:
    assert client.watch(1, tmp_path / "a")
    (tmp_path / "a").mkdir()  # its event waits unread
    assert client.watch(2, tmp_path / ("b" if accepted else "a")) is accepted
    await settle()
    assert client.told == []
    (tmp_path / "b").mkdir()
    await settle()
    assert client.told == ([2] if accepted else [])


async def test_a_directory_removed_while_somebody_is_in_it_fires(client: Client, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    assert client.watch(1, tmp_path / "dir" / "absent")
    somebody = os.open(tmp_path / "dir", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (tmp_path / "dir").rmdir()
        await settle()
        assert client.told == [1], "the directory itself is not gone before it is closed"
    finally:
        os.close(somebody)


async def test_names_of_any_bytes_are_told_apart(client: Client, tmp_path: Path) -> None:
    assert client.watch(1, tmp_path / os.fsdecode(b"\xff\xc3"), tmp_path / "žluťoučký")
    (tmp_path / "zlutoucky").mkdir()
    await settle()
    assert client.told == []
    (tmp_path / os.fsdecode(b"\xff\xc3")).mkdir()
    await settle()
    assert client.told == [1]


@pytest.mark.parametrize("step", [0, -1])
async def test_a_path_that_appears_while_arming_is_not_missed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    directories = list(watch.survey([os.fsencode(tmp_path / "a")], None) or {})
    add = watch._inotify_add_watch

    def add_and_lose_the_race(fd: int, path: bytes, mask: int) -> int:
        if path == directories[step]:
            (tmp_path / "a").mkdir()
        return add(fd, path, mask)

    monkeypatch.setattr(watch, "_inotify_add_watch", add_and_lose_the_race)
    assert not client.watch(1, tmp_path / "a")
    await settle()
    assert client.told == []


async def test_lost_events_fire(client: Client) -> None:
    with tempfile.TemporaryDirectory(
        dir="/dev/shm"
    ) as folder:  # in memory: so many changes take long on a disk
        place = Path(folder)
        assert client.watch(1, place / "absent")
        for number in range(QUEUE_LIMIT // 2 + 1):
            os.mkdir(name := f"{folder}/{number % 2}")
            os.rmdir(name)
        (place / "absent").mkdir()  # finds the queue full
        async with asyncio.timeout(patient(20)):
            while not client.told:
                await settle()
        assert client.told == [1]


async def test_without_inotify_nothing_is_watched(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    assert watch.is_supported()
    monkeypatch.setattr(watch, "_inotify_add_watch", exhausted)
    assert not client.watch(1, tmp_path / "a")
    monkeypatch.undo()
    assert client.watch(2, tmp_path / "a")
    monkeypatch.setattr(watch, "_inotify_init", exhausted)
    assert not watch.is_supported()
    assert not Client().watch(1, tmp_path / "a")


async def test_a_closed_watch_is_silent_and_frees_its_descriptor(tmp_path: Path) -> None:
    def instances() -> int:
        links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
        return sum("inotify" in os.readlink(link) for link in links if os.path.lexists(link))

    before = instances()
    client = Client()
    assert client.watch(1, tmp_path / "a")
    assert instances() == before + 1
    (tmp_path / "a").mkdir()
    client.watcher.close()
    client.watcher.close()
    await asyncio.get_running_loop().shutdown_default_executor()
    await settle()
    assert client.told == []
    assert instances() == before
