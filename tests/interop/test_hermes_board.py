"""A board that the real Hermes Agent made, brought in and worked on here."""

import json
import subprocess
from pathlib import Path

import pytest

from holdfast.board.hermes import hermesfile
from holdfast.board.hermes.intake import ImportReport, import_board
from holdfast.board.rules.rows import WorkspaceKind
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store, open_store
from tests.support import hermes
from tests.support.patience import patient
from tests.support.servers import isolated_environment

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = patient(50.0)  # its imports alone take seconds on a loaded machine


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The home of a Hermes with a board, and the ids of its tasks by their titles."""
    home = tmp_path / "hermes"
    home.mkdir()
    done = subprocess.run(
        [hermes.requires_hermes(), ROOT / "tests" / "support" / "hermes_board.py", home / "kanban.db"],
        env={**isolated_environment(home), "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ids = json.loads(done.stdout)
    assert isinstance(ids, dict)
    return home, ids


def brought(store: Store, home: Path) -> ImportReport:
    file = hermesfile.locate(home)
    return import_board(
        *(store, hermesfile.read(file), lambda row: hermesfile.attachment(file, row)),
        board=hermesfile.board_name(file),
        who="me",
    )


def test_everything_on_a_real_board_is_here_and_can_be_worked_on(
    made: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    home, ids = made
    with open_store(str(tmp_path / "board.db")) as store:
        report = brought(store, home)
        assert report.notes == []
        assert {name: store.task(task).status for name, task in ids.items()} == {
            "done": TaskStatus.DONE,
            "waits": TaskStatus.TODO,
            "ready": TaskStatus.READY,
            "running": TaskStatus.WAITING_HUMAN,
            "blocked": TaskStatus.WAITING_HUMAN,
            "spent": TaskStatus.FAILED,
            "silent": TaskStatus.HANDOFF_FAILED,
            "parked": TaskStatus.WAITING_HUMAN,
            "gone": TaskStatus.ARCHIVED,
            "triage": TaskStatus.TRIAGE,
        }
        done = store.show(ids["done"])
        assert (done.task.body, done.task.priority, done.task.max_attempts) == ("do it\nwell", 7, 2)
        assert (done.task.assignee, done.task.created_by, done.task.result) == ("coder", "ann", "all done")
        assert [(comment.author, comment.body) for comment in done.comments] == [
            ("bob", "looks good"),
            ("ann", "thanks"),
        ]
        [run] = done.runs
        assert (run.outcome, run.summary, run.note) == ("completed", "all done", "half way")
        assert run.metadata["tests"] == 3
        assert store.file(ids["done"], None, "notes.txt") == b"read me"
        [imported] = [event for event in done.events if event.kind == "imported"]
        kept = imported.payload["hermes"]
        assert isinstance(kept, dict)
        assert (kept["tenant"], kept["skills"]) == ("acme", '["git"]')
        assert store.task(ids["blocked"]).question == "which database?"
        placed = store.task(ids["ready"])
        assert (placed.workspace_kind, placed.workspace) == (WorkspaceKind.DIR, "/srv/x")
        assert store.faults() == []

        won = store.claim("default", worker="w")
        assert won is not None
        assert won[0].id == ids["ready"]
        store.complete(won[1].ref, "e", "ok")


def test_a_real_board_is_brought_in_once(made: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    home, ids = made
    content = (home / "kanban.db").read_bytes()
    with open_store(str(tmp_path / "board.db")) as store:
        first = brought(store, home)
        events = store.events("default", after=0, limit=500)
        second = brought(store, home)
        assert second.counts["tasks"] == {"here before": len(ids)}
        assert store.events("default", after=0, limit=500) == events
        totals = [
            {table: sum(counts.values()) for table, counts in report.counts.items() if "key" not in table}
            for report in (first, second)
        ]
        assert totals[0] == totals[1]
    assert (home / "kanban.db").read_bytes() == content
    assert not (home / "kanban.db-wal").exists()
