"""A run and its workspace, as the board is told: which it is in, and whether what it says it left is."""

import asyncio
import contextlib
from typing import Final

from holdfast.board.rules.rows import Run, WorkspaceKind
from holdfast.board.verbs import runs
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.run import workspace
from holdfast.dispatch.run.workspace import Workspace
from holdfast.errors import Conflict, OperationFailed

LOOK_S: Final = 1.0  # between looks whether a directory is free


async def enter(context: DispatchContext, run: Run, space: Workspace, over: asyncio.Event) -> None:
    """Say where a run works; a directory that a run of another host is in is waited for.

    Raises:
        OperationFailed: the run was over before that.
        HoldfastError: the store does not answer.
    """
    ask, path = context.store.ask, str(space.path)
    if space.kind is not WorkspaceKind.DIR:
        await ask(lambda store: store.set_run(run.ref, workspace=path))
        return
    waited = False
    while True:
        try:
            await ask(lambda store: store.occupy(run.ref, path))
            break
        except Conflict as exc:
            note, waited = f"waits: {exc}", True
            await ask(lambda store, note=note: store.heartbeat(run.ref, note=note))  # type: ignore[misc]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await over.wait()
            raise OperationFailed("it was over before its directory was free")
    if waited:
        await ask(lambda store: store.heartbeat(run.ref))


async def verify(context: DispatchContext, run: Run, space: Workspace) -> None:
    """Look for what a run says that it made, and write down what is not there. Its answer stands."""
    if runs.CARDS in run.metadata or runs.FILES in run.metadata:
        files = runs.names_in(run, runs.FILES)
        missing = await asyncio.to_thread(workspace.absent, space.path, files)
        await context.store.ask(lambda store: store.verify(run.ref, missing))
