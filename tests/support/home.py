"""A home of Holdfast for tests: the commands that people type in it, and what runs for it."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.supervisor import background, daemons
from tests.support.patience import patient

WAIT_S: Final = patient(60)
NEIGHBOURS: Final = ("--max-load", "0", "--min-free-memory", "0")  # have no say here


@pytest.fixture
async def home() -> AsyncIterator[Path]:
    """Empty, outside of what workers do not see; what runs for it is ended."""
    folder = Path(tempfile.mkdtemp(prefix="home-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        await background.end(folder, daemons.find(folder), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "HOLDFAST_HOME": str(home)}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *words]


@contextlib.contextmanager
def started(home: Path, *words: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
    """`up` or `dispatch` in the foreground of a process group of its own, as a shell starts it.

    Also below `nohup`, whose ignored signal it would respect.
    """
    argv = ["env", "--default-signal=HUP", *command(*words, "--json", *NEIGHBOURS)]
    with subprocess.Popen(
        argv, env=environment(home) | more, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def until(process: "subprocess.Popen[str]", kind: str) -> dict[str, Any]:
    """The next line of this kind that it prints."""
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        while line := await asyncio.to_thread(process.stdout.readline):
            said: dict[str, Any] = json.loads(line)
            if said.get("kind") == kind:
                return said
    raise AssertionError("it ended")
