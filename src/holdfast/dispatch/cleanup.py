"""Workspaces of archived tasks are removed, and that is an event; work that is nowhere else stays."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Final

import msgspec

from holdfast.board.rules.rows import Task, WorkspaceKind
from holdfast.board.rules.transitions import Status
from holdfast.board.store import Store
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.rules.manifest import MAX_LISTED
from holdfast.dispatch.run import changes, workspace
from holdfast.dispatch.run.workspace import Made
from holdfast.errors import NotFound, OperationFailed

log = logging.getLogger(__name__)

SWEEP_S: Final = 30.0  # between sweeps; nobody waits for one


async def sweep(context: DispatchContext) -> None:
    """Remove what can be removed.

    Raises:
        HoldfastError: store or exec server do not answer; the rest is for the next time.
    """
    for made in await asyncio.to_thread(workspace.records, context.home):
        if made.kept:
            continue
        try:
            task = await context.store.ask(Store.task, made.task)
        except NotFound:  # of another board
            continue
        if task.status is Status.ARCHIVED:
            await _remove(context, task, made)


async def _remove(context: DispatchContext, task: Task, made: Made) -> None:
    path = workspace.folder(context.home) / task.id
    listed = (
        sorted((await asyncio.to_thread(changes.look, path)).entries)[:MAX_LISTED] if path.is_dir() else []
    )
    try:
        if made.kind is WorkspaceKind.WORKTREE and path.is_dir():
            search = context.environ.get("PATH", "/usr/bin:/bin")
            changed = await changes.since_commit(context.home, path, made.base, search, made.copied)
            if changed.count:
                await _tell(context, task, "workspace_kept", list(changed.paths))
                workspace.write(context.home, msgspec.structs.replace(made, kept=True))
                return
            await asyncio.to_thread(workspace.give_back, made, path)
        else:
            await asyncio.to_thread(_delete, path)
    except (OSError, OperationFailed) as exc:
        log.warning("a workspace could not be removed", extra={"task_id": task.id, "missing": str(exc)[:200]})
        return
    await _tell(context, task, "workspace_removed", listed)
    workspace.forget(context.home, task.id)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)


async def _tell(context: DispatchContext, task: Task, kind: str, files: list[str]) -> None:
    """Events are the store's, and so is the clock that dates them."""
    await context.store.ask(
        lambda store: store.database.write(
            lambda tx: tx.log(task.board, kind, context.host, task=task.id, files=files)
        )
    )
