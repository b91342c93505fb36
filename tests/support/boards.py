"""What tests of the board share."""

import contextlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.board.rules.rows import NewTask, Run, Task
from holdfast.board.store import Store
from tests.support.patience import patient

ROOT: Final = Path(__file__).resolve().parents[2]
WAIT_S: Final = patient(200.0)  # for a crowd to finish, on a loaded machine


@dataclass
class SettableClock:
    """Stands still until it is moved."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def made(store: Store, title: str = "do it", *parents: str, **wishes: object) -> Task:
    wish = {"title": title, "parents": parents, "assignee": "coder", **wishes}
    return store.create("b", NewTask(**wish))  # type: ignore[arg-type]  # a test that errs here fails here


def claimed(store: Store, task: str | None = None) -> tuple[Task, Run]:
    won = store.claim("b", worker="w", host="h", task=task)
    assert won is not None
    return won


class Crowd:
    """Processes at one board that begin together. None of them outlives this."""

    def __init__(self, verb: str, address: str, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "tests.support.board_worker", verb, address]
        self.members = [
            subprocess.Popen(
                [*command, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
            for argument in arguments
        ]

    def __enter__(self) -> "Crowd":
        try:
            for member in self.members:
                assert member.stdout is not None
                assert member.stdout.readline() == "here\n"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
            member.wait()
            for stream in (member.stdin, member.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def begin(self) -> None:
        for member in self.members:
            assert member.stdin is not None
            member.stdin.write("\n")
            member.stdin.flush()

    def said(self) -> list[list[str]]:
        """What each of them said until it ended by itself, all without an error."""
        with ThreadPoolExecutor(len(self.members)) as readers:
            spoken = list(readers.map(lambda member: member.communicate(timeout=WAIT_S)[0], self.members))
        assert [member.returncode for member in self.members] == [0] * len(self.members)
        return [text.split() for text in spoken]
