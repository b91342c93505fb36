"""Attaches a person to a worker's terminal: output, input, and size.

The exec server owns the worker's terminal; this module only shows it. Detaching does not end the worker. If
the supervisor restarts meanwhile, the view is restored automatically.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import messages
from holdfast.agents.supervisor.messages import (
    InputParams,
    SizeParams,
    WorkerOutput,
    WorkerParams,
    WorkerReport,
)
from holdfast.errors import InvalidRequest
from holdfast.local.relay import STDOUT, OwnTerminal, on_terminal
from holdfast.local.streams import Writer, read_input
from holdfast.local.tasks import TaskSet
from holdfast.unixrpc.client import PeerGone

LEAVE: Final = b"\x1c"  # Ctrl-\
_CLEAR: Final = b"\x1b[2J\x1b[H"
# Resets modes that a program may have left on or off: alternate screen, paste marks, mouse, keys, cursor.
_CALM: Final = (
    b"\x1b[?1049l\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[<u\x1b[?25h\x1b[0m\r\n"
)


async def attach(home: Path, worker: str) -> WorkerReport:
    """Attach to the worker's terminal until it ends or the person leaves; return the last report.

    Raises:
        InvalidRequest: we have no terminal ourselves, or the worker has none.
    """
    if not on_terminal():
        raise InvalidRequest("this is not a terminal", remedy=f"holdfast worker logs {worker}")
    left = asyncio.Event()
    with OwnTerminal():
        try:
            while True:
                try:
                    async with Workers.connect(home) as workers:
                        return await _view(workers, worker, left)
                except PeerGone:
                    continue  # the supervisor is gone; connecting starts it again
        finally:
            os.write(STDOUT, _CALM)


async def _view(workers: Workers, worker: str, left: asyncio.Event) -> WorkerReport:
    report = await workers.call(messages.ATTACH, WorkerParams(worker))
    if not report.tty:
        raise InvalidRequest(f"{worker} has no terminal", remedy=f"holdfast worker logs {worker}")
    loop = asyncio.get_running_loop()
    writer = Writer(loop)
    await writer.write(STDOUT, _CLEAR + report.shown.encode())
    if report.state.ended:
        return report

    async def typed(data: bytes) -> None:
        if LEAVE in data or not data:
            left.set()
            return
        await workers.call(messages.INPUT, InputParams(worker, data))

    async with _sized(workers, worker):
        stop = read_input(loop, typed, None)
        try:
            return await _show_output(workers, worker, writer, left, report)
        finally:
            stop()


async def _show_output(
    workers: Workers, worker: str, writer: Writer, left: asyncio.Event, report: WorkerReport
) -> WorkerReport:
    leaving = asyncio.ensure_future(left.wait())
    notices = workers.notices()
    try:
        while True:
            note = asyncio.ensure_future(anext(notices))
            await asyncio.wait({note, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                note.cancel()
                await asyncio.gather(note, return_exceptions=True)
                return report
            try:
                said = note.result()
            except StopAsyncIteration:
                raise PeerGone("the supervisor is gone") from None
            if isinstance(said, WorkerOutput):
                await writer.write(STDOUT, said.data)
            elif isinstance(said, WorkerReport):
                report = said
                if report.state.ended:
                    return report
    finally:
        leaving.cancel()


@contextlib.asynccontextmanager
async def _sized(workers: Workers, worker: str) -> AsyncIterator[None]:
    """Keep the worker's terminal as large as ours; a full-screen program redraws itself on each change."""
    loop = asyncio.get_running_loop()
    tasks = TaskSet()

    def resize() -> None:
        size = shutil.get_terminal_size()
        asked = SizeParams(worker, size.lines, size.columns)
        tasks.start(workers.call(messages.RESIZE, asked))

    loop.add_signal_handler(signal.SIGWINCH, resize)
    resize()
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        await tasks.aclose()
