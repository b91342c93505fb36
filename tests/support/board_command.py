"""The commands of the board as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support import warm
from tests.support.patience import patient

WAIT_S: Final = patient(60)


class Board:
    """Commands on one store, with a home of their own, in a directory of their own."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        self.home = home
        self.cwd = home / "project"
        self.cwd.mkdir(parents=True, exist_ok=True)
        named = {"HOLDFAST_STORE": address, "HOLDFAST_HOME": str(home)}
        self.environment = {
            name: value for name, value in os.environ.items() if name != "HOLDFAST_BOARD"
        } | named

    def start(self, *args: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "holdfast", *args]
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cold(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """With an interpreter of its own, as people start it."""
        with self.start(*args) as process:
            try:
                out, err = process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(list(args), process.returncode, out, err)

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return warm.run(args, env=self.environment, cwd=self.cwd, timeout=WAIT_S)

    def answer(self, *args: str, code: int = 0) -> dict[str, object]:
        done = self.run(*args, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        assert found["schemaVersion"] == 1
        return found

    def tasks(self, *args: str) -> list[dict[str, object]]:
        found = self.answer("task", "list", "--board", "b", *args)["tasks"]
        assert isinstance(found, list)
        return found

    def task(self, *args: str) -> dict[str, object]:
        found = self.answer("task", *args)["task"]
        assert isinstance(found, dict)
        return found
