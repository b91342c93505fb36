"""Letters between a worker on another machine and here, with a machine that answers whatever it likes."""

import stat
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.agents.fleet import courier
from holdfast.agents.fleet.courier import Courier
from holdfast.agents.worker.launching import Handover
from holdfast.client.policy import Policy
from holdfast.errors import NotFound, OperationFailed

THERE = "/far/work/.holdfast"


class FarFiles:
    """The files of another machine. Every call must stay in the worker's own directory, and be confined."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.confined = True

    def _check(self, path: str, policy: Policy | None) -> None:
        assert ".." not in PurePosixPath(path).parts
        assert path == THERE or path.startswith(f"{THERE}/")
        assert policy is not None or not self.confined
        assert policy is None or THERE in repr(policy)

    async def list(self, path: str, *, policy: Policy | None = None) -> list[Any]:
        self._check(path, policy)
        return [
            SimpleNamespace(file_name=one.removeprefix(f"{path}/"))
            for one in self.held
            if one.startswith(f"{path}/")
        ]

    async def stat(self, path: str, *, policy: Policy | None = None) -> Any:
        return SimpleNamespace(size=len(await self.read(path, policy=policy)))

    async def read(self, path: str, *, policy: Policy | None = None) -> bytes:
        self._check(path, policy)
        if path not in self.held:
            raise NotFound(path)
        return self.held[path]

    async def write(self, path: str, data: bytes, *, policy: Policy | None = None) -> None:
        self._check(path, policy)
        self.held[path] = data

    async def remove(self, path: str, *, policy: Policy | None = None, **_more: bool) -> None:
        self._check(path, policy)
        self.held.pop(path, None)

    async def make_directory(self, path: str, *, parents: bool, policy: Policy | None = None) -> None:
        self._check(path, policy)


class Post:
    """Both ends, with a courier between them."""

    def __init__(self, here: Path) -> None:
        self.here, self.files = here, FarFiles()
        for name in ("outbox", "answers"):
            (here / name).mkdir(parents=True)
        self.environment: Any = SimpleNamespace(files=self.files)
        self.courier = self.anew()

    def anew(self) -> Courier:
        handover = Handover(folder=str(self.here), grant='{"token":"t"}', variable="X")
        self.courier = Courier(handover, "/far/work")
        return self.courier

    def say(self, name: str, data: bytes = b"{}") -> None:
        self.files.held[f"{THERE}/outbox/{name}"] = data

    async def carry(self) -> int:
        return await self.courier.carry(self.environment)

    @property
    def arrived(self) -> list[str]:
        return sorted(path.name for path in (self.here / "outbox").iterdir())


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path / ".holdfast")


async def test_a_letter_comes_here_and_its_answer_goes_there(post: Post) -> None:
    post.say("a.json", b"letter")
    assert await post.carry() == 1
    assert (post.here / "outbox/a.json").read_bytes() == b"letter"
    assert await post.carry() == 0, "it is carried once"
    (post.here / "outbox/a.json").unlink()
    (post.here / "answers/a.json").write_bytes(b"answer")
    await post.carry()
    assert post.files.held == {f"{THERE}/answers/a.json": b"answer"}
    assert list((post.here / "answers").iterdir()) == []


async def test_one_who_comes_after_a_kill_carries_again_what_has_no_answer(post: Post) -> None:
    post.say("a.json")
    await post.carry()
    post.anew()
    assert await post.carry() == 1, "the same letter has the same id: it happens once"


async def test_no_name_leads_out_of_the_outbox(post: Post) -> None:
    for name in (
        "../run.json",
        "a/b.json",
        ".json",
        "x.txt",
        "a.json\n",
        "ä.json",
        "x" * 65 + ".json",
        "..json",
    ):
        post.say(name)
    assert await post.carry() == 0
    assert post.arrived == []
    assert sorted(path.name for path in post.here.iterdir()) == ["answers", "outbox"]


async def test_a_flood_is_bounded_in_size_and_number(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "MAX_LETTERS", 100)
    post.say("big.json", b"x" * (courier.MAX_LETTER + 1))
    for number in range(500):
        post.say(f"n{number:04}.json")
    assert await post.carry() == courier.MAX_AT_ONCE
    with pytest.raises(OperationFailed, match="more than 100 things"):
        await post.carry()
    assert len(post.arrived) <= 100
    assert "big.json" not in post.arrived


async def test_a_link_here_is_neither_read_nor_written_through(post: Post, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.json").write_bytes(b"secret")
    post.say("a.json", b"letter")
    await post.carry()
    (post.here / "answers").rmdir()
    (post.here / "answers").symlink_to(secret)
    await post.carry()
    assert b"secret" not in post.files.held.values()
    (post.here / "outbox/a.json").unlink()
    (post.here / "outbox").rmdir()
    (post.here / "outbox").symlink_to(secret)
    post.say("b.json", b"letter")
    with pytest.raises(NotADirectoryError):
        await post.carry()
    assert sorted(path.name for path in secret.iterdir()) == ["a.json"]


async def test_what_lies_beside_the_work_goes_there_with_a_grant_of_its_own(post: Post) -> None:
    (post.here / "task.md").write_bytes(b"do it")
    (post.here / "files").mkdir()
    (post.here / "files/data").write_bytes(b"data")
    (post.here / "files/link").symlink_to("/etc/passwd")
    (post.here / "run.json").write_bytes(b"where it is here")
    (post.here / "outbox/old.json").write_bytes(b"of an earlier run")
    post.files.confined = False  # the directory itself is made, and a link in its place removed
    await post.courier.lay_out(post.environment)
    assert post.files.held == {
        f"{THERE}/.gitignore": b"*\n",
        f"{THERE}/task.md": b"do it",
        f"{THERE}/files/data": b"data",
        f"{THERE}/run.json": b'{"token":"t"}',
    }
    assert stat.S_IMODE(post.here.stat().st_mode)
