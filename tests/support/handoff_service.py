"""A service that is there to be killed: `python -m tests.support.handoff_service STORE SOCKET WORKSPACE…`.

Says "here" once it listens, then answers on its socket and reads the outboxes until it dies.
"""

import asyncio
import sys
from pathlib import Path

from tests.support.handoff import serving


async def main(address: str, socket: str, *workspaces: str) -> None:
    async with serving(address, Path(socket), [Path(workspace) for workspace in workspaces]):
        sys.stdout.write("here\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
