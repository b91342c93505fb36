"""A tmux server of a test's own, and what a person would see in a pane of it."""

import asyncio
import contextlib
import secrets
import subprocess
from collections.abc import AsyncIterator
from typing import Final

from tests.support.patience import patient

WAIT_S: Final = patient(30.0)


@contextlib.asynccontextmanager
async def tmux_server() -> AsyncIterator[str]:
    """The name of its socket; the server is ended with whatever runs in it."""
    socket = f"hf-{secrets.token_hex(4)}"
    try:
        yield socket
    finally:
        await tmux(socket, "kill-server")


async def tmux(socket: str, *words: str) -> str:
    argv = ["tmux", "-L", socket, *words]
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, timeout=patient(30), check=False
    )
    return str(done.stdout)


async def shows(socket: str, pane: str, text: str) -> None:
    seen = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            while text not in seen:
                await asyncio.sleep(0.1)
                seen = (await tmux(socket, "capture-pane", "-p", "-t", pane)).strip()
    assert text in seen, seen
