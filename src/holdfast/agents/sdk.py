"""Workers for programs: start them, follow them, end them.

    async with holdfast.Workers.connect() as workers:
        worker = await workers.run("codex", prompt="fix the tests", cwd="/srv/project")
        async for change in worker.changes():
            print(change["state"], change["about"])

Workers belong to the supervisor, not to the connection: closing it ends nothing. Reports are the objects that
`holdfast worker status --json` prints.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.agents import tmux
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.control import Client
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.errors import ConnectionLost
from holdfast.home import default_home

ENDED: Final = frozenset({"failed", "completed", "lost"})
RUN_S: Final = 120.0  # to start a worker: its sandbox, its preflight
# What a worker gets of its caller's environment unless told otherwise: enough to find programs and a home.
PASSED: Final = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TZ", "USER")


def passed(names: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a worker inherits, and those named besides."""
    wanted = {*PASSED, *names, *(name for name in environ if name.startswith("LC_"))}
    return {name: environ[name] for name in sorted(wanted) if name in environ}


class Worker:
    """A handle; `report` is the newest that was seen."""

    def __init__(self, workers: "Workers", report: dict[str, Any]) -> None:
        self._workers = workers
        self.report = report
        self.id: str = report["id"]

    async def status(self) -> dict[str, Any]:
        """Raises NotFound."""
        self.report = await self._workers.call("status", {"worker": self.id})
        return self.report

    async def changes(self) -> AsyncIterator[dict[str, Any]]:
        """Every report from now on, the present one first, until it has ended.

        Raises:
            ConnectionLost: the supervisor is gone; connect again.
        """
        async with Workers.connect(self._workers.home) as own:  # a subscription is a connection of its own
            await own.call("changes")
            yield await self.status()
            if self.report["state"] in ENDED:
                return
            async for line in own.notes():
                if line["id"] == self.id:
                    self.report = line
                    yield line
                    if line["state"] in ENDED:
                        return
        raise ConnectionLost("the supervisor is gone", remedy="connect again; the worker is not affected")

    async def equivalence(self) -> dict[str, Any]:
        """Whether it is where its CLI would be without us, as `holdfast worker equivalence --json` prints it.

        Waits until that has been found out, some seconds after the start.
        """
        answer: dict[str, Any] = await self._workers.call("equivalence", {"worker": self.id}, timeout_s=None)
        return answer

    async def wait(self) -> dict[str, Any]:
        """Its last report."""
        self.report = await self._workers.call("wait", {"worker": self.id}, timeout_s=None)
        return self.report

    async def send(self, text: str = "", keys: Sequence[str] = ()) -> str:
        """Type a text and submit it, then press keys; whether the text was seen to be taken.

        Raises:
            InvalidRequest: it does not wait for that now.
        """
        answer = await self._workers.call("send", {"worker": self.id, "text": text, "keys": list(keys)})
        return str(answer["outcome"])

    async def approve(self, option: str | None = None, *, request: str | None = None) -> dict[str, Any]:
        """Allow what it asks: with this option, or just this once; what was answered.

        `request` is the question that is meant, from `report["asks"]`.

        Raises:
            InvalidRequest: nothing is asked, or something else, or nobody knows how to answer it.
            UsageError: that option is not offered.
        """
        return await self._answer({"option": option, "request": request})

    async def deny(self, option: str | None = None, *, request: str | None = None) -> dict[str, Any]:
        """Likewise, deny it."""
        return await self._answer({"option": option, "request": request, "deny": True})

    async def _answer(self, params: dict[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = await self._workers.call("approve", {"worker": self.id, **params})
        return given

    async def show_in_tmux(self) -> str:
        """Let a person find it with `tmux attach -t holdfast-ID`; the id of the pane.

        Raises:
            NotFound: tmux is not installed.
        """
        pane = await tmux.show(self._workers.home, self.id)
        self.report = await self._workers.call("shown", {"worker": self.id, "pane": pane})
        return pane

    async def stop(self, *, grace_s: float | None = None) -> dict[str, Any]:
        """End it, gracefully if it takes the time; its last report."""
        params = {"worker": self.id} | ({} if grace_s is None else {"grace_s": grace_s})
        self.report = await self._workers.call("stop", params, timeout_s=None)
        return self.report


class Workers:
    """A connection to the supervisor."""

    def __init__(self, client: Client, home: Path) -> None:
        self._client = client
        self.home = home

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, home: Path | None = None) -> AsyncIterator["Workers"]:
        """The supervisor of `home`, which is started if there is none.

        Raises:
            OperationFailed: it does not start.
        """
        where = home or default_home()
        client = await background.supervisor(where)
        try:
            yield cls(client, where)
        finally:
            await client.aclose()

    async def run(
        self,
        agent: str,
        *,
        cwd: str,
        prompt: str | None = None,
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Worker:
        """Start a worker. `more` are the other members of a wish (`agents/launching.py`)."""
        wish = WorkerSpec(agent=agent, cwd=cwd, prompt=prompt, env=dict(env or passed()), **more)
        return Worker(self, await self.call("run", wish, timeout_s=RUN_S))

    async def find(self, worker: str) -> Worker:
        """Raises NotFound."""
        return Worker(self, await self.call("status", {"worker": worker}))

    async def list(self, *, ended: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.call("list", {"ended": ended})
        return found

    async def call(self, method: str, params: object = None, *, timeout_s: float | None = 30.0) -> Any:
        return await self._client.call(method, params, timeout_s=timeout_s)

    async def notes(self) -> AsyncIterator[dict[str, Any]]:
        """What the supervisor says on this connection after `changes` or `attach`."""
        async for line in self._client.notes():
            yield line.params
