"""What is said of daemons that run: their last error, and whose code they run."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.agents.supervisor import daemons
from holdfast.cli import cli
from holdfast.commands.daemons import running
from tests.support.rows import every_row

LOG = """\
11:58:01 warning slow
11:58:02 error   first session_id=s
11:58:03 critical second Authorization: Bearer abcdefgh12345678
Traceback (most recent call last):
ValueError: 12:00:00 error in words
11:58:04 info    third
"""


def running_daemon(role: str, origin: daemons.Origin | None = None) -> daemons.Daemon:
    process = daemons.find_process(os.getpid())
    assert process is not None
    card = daemons.DaemonCard(role, process.pid, process.began, 0.0, origin or daemons.origin())
    return daemons.Daemon(role, process, card)


@every_row(
    ("text", "found"),
    [
        (LOG, "11:58:03 critical second Authorization: Bearer [redacted]"),
        ("11:58:01 warning slow\n", None),
        ("", None),
        ("11:58:02 error   \x1b[2J" + "x" * 400, "11:58:02 error " + "x" * 284 + "…"),
    ],
)
def test_the_last_error_of_a_log_is_one_line_without_secrets(text: str, found: str | None) -> None:
    assert daemons.find_last_error(text) == found


def test_only_the_end_of_a_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "MAX_LOG_READ", 100)
    (tmp_path / "exec.log").write_text("11:58:02 error   old\n" + "x" * 200)
    assert daemons.read_last_error(tmp_path, daemons.OWNER) is None
    assert daemons.read_last_error(tmp_path, daemons.SUPERVISOR) is None  # no log
    assert daemons.read_last_error(tmp_path, daemons.UP) is None  # none of its own


def test_status_tells_the_last_error_of_supervisor_and_worker_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [running_daemon(daemons.SUPERVISOR), running_daemon(daemons.OWNER)]
    monkeypatch.setattr(daemons, "find", lambda home: found)
    (tmp_path / "supervisor.log").write_text("11:58:02 error   a worker could not be looked at\n")
    (tmp_path / "exec.log").write_text("11:58:03 error   request failed unexpectedly\n")
    said = CliRunner().invoke(cli, ["status", "--home", str(tmp_path)]).output
    assert "  last error of supervisor: 11:58:02 error a worker could not be looked at\n" in said
    assert "  last error of worker server: 11:58:03 error request failed unexpectedly\n" in said
    rows = json.loads(CliRunner().invoke(cli, ["status", "--json", "--home", str(tmp_path)]).output)
    assert [row["lastError"].split(" ", 2)[2] for row in rows["daemons"]] == [
        "a worker could not be looked at",
        "request failed unexpectedly",
    ]


def test_a_second_up_says_whose_code_the_first_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = daemons.Origin("0.0.1", str(tmp_path / "checkout"), "b")
    (tmp_path / "checkout").mkdir()
    monkeypatch.setattr(daemons, "find", lambda home: [running_daemon(daemons.UP, other)])
    said = str(running.conflict(tmp_path))
    assert f"other code than this command: it is version 0.0.1 of {tmp_path}/checkout" in said
    monkeypatch.setattr(daemons, "find", lambda home: [running_daemon(daemons.UP)])
    said = str(running.conflict(tmp_path))
    assert f", version {daemons.origin().version} of {daemons.PLACE}" in said
    assert "other code" not in said
