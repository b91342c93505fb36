"""What is told of where a worker is, when nobody has looked."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.agents.evidence.advice import EquivalenceReport
from holdfast.agents.worker import surroundings
from holdfast.agents.worker.book import Record, WorkerRecords
from holdfast.agents.worker.surroundings import MAX_LOOKS, WorkerSurroundings
from tests.support.rows import every_row


@every_row(
    ("about", "why"),
    [
        ({"compared": False, "pid": 1}, "it is a script of a task, and no CLI"),
        ({"host": "box"}, "it runs on another machine"),
        ({"pid": None}, "it was never started"),
        ({"pid": 1}, "nobody has looked: its supervisor was ended"),
    ],
)
async def test_a_worker_that_nobody_looked_at_says_why(
    about: dict[str, object], why: str, tmp_path: Path
) -> None:
    record = Record(id="w", agent="shell", argv=["sh"], cwd="/", tty=False, created_at=0.0, **about)  # type: ignore[arg-type]
    told = await WorkerSurroundings(WorkerRecords(tmp_path)).report(record)
    assert (told.host_equivalent, told.why) == ("unknown", why)


async def test_only_so_many_wait_to_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps a session, and workers may end faster than anybody looks."""
    go_on = asyncio.Event()

    async def observe(record: Record, *_: object) -> EquivalenceReport:
        await go_on.wait()
        return EquivalenceReport(id=record.id, agent=record.agent, host_equivalent="yes", why="")

    monkeypatch.setattr(surroundings, "_observe", observe)
    book, nothing = WorkerRecords(tmp_path), cast(Any, None)
    book.prepare()
    looking = WorkerSurroundings(book)
    records = [
        Record(id=f"w{number}", agent="shell", argv=["sh"], cwd="/", tty=False, created_at=0.0)
        for number in range(MAX_LOOKS + 3)
    ]
    for record in records:
        book.add(record)
        looking.begin(record, nothing, nothing)
    late = [await looking.report(record) for record in records[MAX_LOOKS:]]
    assert {(one.host_equivalent, one.why.partition(" ")[0]) for one in late} == {("unknown", str(MAX_LOOKS))}
    go_on.set()
    told = [await looking.report(record) for record in records[:MAX_LOOKS]]
    assert {one.host_equivalent for one in told} == {"yes"}
    looking.begin(records[-1], nothing, nothing)
    assert (await looking.report(records[-1])).host_equivalent == "yes"


async def test_the_launcher_of_a_probe_ends_before_the_supervisor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the supervisor ends while it is being closed: nothing else would wait for its process."""
    closing, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Launcher:
        async def aclose(self) -> None:
            closing.set()
            await go_on.wait()
            closed.set()

    def fail() -> None:
        raise OSError("no landmarks")

    nothing = cast(Any, None)
    monkeypatch.setattr(surroundings, "_case", lambda *_: nothing)
    monkeypatch.setattr(surroundings, "LauncherClient", Launcher)
    monkeypatch.setattr(surroundings, "Landmarks", fail)
    book = WorkerRecords(tmp_path)
    book.prepare()
    record = Record(id="w", agent="shell", argv=["sh"], cwd="/", tty=False, created_at=0.0)
    book.add(record)
    looking = WorkerSurroundings(book)
    looking.begin(record, nothing, nothing)
    await closing.wait()
    ending = asyncio.create_task(looking.aclose())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ending.done()
    go_on.set()
    await ending
    assert closed.is_set()
