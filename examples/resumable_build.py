"""A build that goes on while the link to it is cut, and whose output has no hole afterwards.

    python examples/resumable_build.py

It starts a server, puts a cable between the server and itself, and pulls it out in mid-build, twice.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import holdfast

STEPS = 12
BUILD = f'for step in $(seq {STEPS}); do echo "step $step of {STEPS}"; sleep 0.1; done'
PULL_AFTER = (b"step 3 ", b"step 7 ")


class Cable:
    """Every connection to the server goes through here."""

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self._ends: list[asyncio.StreamWriter] = []

    def pull(self) -> None:
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._server.hostname, self._server.port)
        self._ends += [writer, back]
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def server_of_our_own() -> AsyncIterator[str]:
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", "ws://127.0.0.1:0"]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    try:
        yield (await server.stdout.readline()).decode().strip()
    finally:
        server.terminate()
        await server.wait()


async def watch_build(url: str, cable: Cable) -> int:
    async with holdfast.connect(url) as env:
        build = await env.start(["/bin/sh", "-c", BUILD])
        async for chunk in build.stdout:
            print(chunk.decode(), end="")
            if any(step in chunk for step in PULL_AFTER):
                cable.pull()
                print("--- the cable is pulled out")
        result = await build.wait()
    steps = result.stdout.decode().splitlines()
    print(f"the build ended with {result.code}: {len(steps)} steps, {len(set(steps))} different ones")
    return result.code


async def main() -> int:
    async with server_of_our_own() as server_url:
        cable = Cable(server_url)
        async with await asyncio.start_server(cable.carry, "127.0.0.1", 0) as proxy:
            host, port = proxy.sockets[0].getsockname()
            return await watch_build(f"ws://{host}:{port}", cable)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
