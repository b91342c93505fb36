"""What is told of where a worker is, when nobody has looked."""

from pathlib import Path

from holdfast.agents.worker.book import Record, WorkerRecords
from holdfast.agents.worker.surroundings import WorkerSurroundings
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
