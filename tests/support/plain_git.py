"""Git as our readers call it, run without an exec server."""

import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from holdfast.agents.changes.git import Git, GitSession, find_git
from holdfast.client.environment import Environment
from holdfast.local.trees import remove_tree
from tests.support.patience import patient

HANG_S: Final = 60.0  # whoever takes that long waits for something


async def reach_nobody(_home: Path) -> Environment:
    raise AssertionError("no exec server is asked")


class PlainGit(Git):
    """Without a sandbox: what git would run shows here, and ten thousand trees do not take hours."""

    @classmethod
    def of(cls, home: Path, user: str) -> "PlainGit":
        return cls(home, user, reach_nobody)

    @contextlib.asynccontextmanager
    async def open(self, own: Path | None = None, *, strange: bool = False) -> AsyncIterator[GitSession]:
        place = own or self.home / "own"
        place.mkdir(exist_ok=own is not None)
        try:
            program = find_git(str(self.home), self.user)
            environment: Any = SimpleNamespace(run=self._run)
            yield GitSession(self, program, environment, place, strange)
        finally:
            if own is None:
                remove_tree(place)

    async def _run(
        self, argv: list[str], *, cwd: str, env: dict[str, str], input: bytes | None, **_: object
    ) -> Any:
        done = subprocess.run(  # noqa: ASYNC221 - nobody else is on this loop
            argv, cwd=cwd, env=env, input=input, capture_output=True, timeout=patient(HANG_S), check=False
        )
        return SimpleNamespace(code=done.returncode, stdout=done.stdout, stderr=done.stderr, dropped_bytes=0)
