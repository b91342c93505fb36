"""The fleet of the page, typed as it is printed: two dispatchers, one PostgreSQL, a third machine by ssh."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import postgres
from tests.support.patience import patient
from tests.support.sshd import SshServer, ssh_server

PAGE: Final = Path(__file__).parents[2] / "docs/howto/a-fleet.md"
LIMIT_S: Final = patient(60.0)

pytestmark = [
    pytest.mark.deep,
    pytest.mark.timeout(LIMIT_S * 6),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]


class Fleet:
    """Who types: `a` and `b` have homes of their own, `you` has none but knows the store."""

    def __init__(self, server: SshServer, store: str) -> None:
        self.server, self.store = server, store
        self.exported: dict[str, str] = {}

    def environ(self, who: str) -> dict[str, str]:
        home = self.server.folder / who
        home.mkdir(exist_ok=True)
        own = {"HOME": str(home), "HOLDFAST_HOME": str(home / "hf")}
        return self.server.environ | own | (self.exported if who == "you" else {})

    def type(self, who: str, line: str) -> str:
        line = line.replace("postgresql://board@db/holdfast", f"'{self.store}'")
        line = line.replace("ssh://gpu/srv/work", f"ssh://box{self.server.home}/srv")
        if found := re.fullmatch(r"export (\w+)='(.*)'", line):
            self.exported[found[1]] = found[2]
            return ""
        done = subprocess.run(
            ["bash", "-e", "-c", line], env=self.environ(who), capture_output=True, text=True,
            timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{who}$ {line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def list_tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.type("you", "holdfast task list --board crew --json"))[
            "tasks"
        ]
        return found

    def wait_until_done(self) -> None:
        until = time.monotonic() + LIMIT_S
        while True:
            tasks = self.list_tasks()
            if all(task["status"] == "done" for task in tasks):
                return
            if time.monotonic() > until or any(task["status"] == "failed" for task in tasks):
                shown = [self.type("you", f"holdfast task show {task['id']}") for task in tasks]
                raise AssertionError("\n".join(shown))
            time.sleep(0.2)


@pytest.fixture
def fleet(postgres_server: str) -> Iterator[Fleet]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hf-ssh-") as folder,
        ssh_server(Path(folder) / "s") as server,
    ):
        (server.home / "srv").mkdir()
        made = Fleet(server, postgres.fresh(postgres_server))
        try:
            yield made
        finally:
            for who in ("a", "b"):
                made.type(who, "holdfast down --workers")
            made.type("a", "holdfast environment remove gpu --stop")


def test_every_command_of_the_page_works_and_both_machines_share_the_board(fleet: Fleet) -> None:
    typed = re.findall(r"^(a|b|you)\$ (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(typed) == 10
    for who, line in typed:
        if "task list" in line:
            fleet.wait_until_done()
        said = fleet.type(who, line)
    assert said.count("done") == 2
    runs = []
    for task in fleet.list_tasks():
        [run] = json.loads(fleet.type("you", f"holdfast task runs {task['id']} --json"))["runs"]
        runs.append(run)
        where = (Path(run["workspace"]) / "where").read_text("utf-8")
        assert where.startswith(str(fleet.server.home)), "it ran over there"
    assert [run["environment"] for run in runs] == ["gpu", "gpu"]
    last = max(runs, key=lambda run: run["started_ms"])
    assert last["workspace"].startswith(str(fleet.server.folder / "b")), "a has ended"
