"""The real Codex as the judge of configuration files: one strict app server, which reads the file anew.

Starting the binary for every file costs forty times what a request does; `config/read` loads the file as
a start does, with unknown keys as errors, and answers what each layer says and what is in force.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.support.patience import patient
from tests.support.servers import isolated_environment

ANSWER_LIMIT_S: Final = patient(40.0)
MAX_LINE_BYTES: Final = 16 * 1024 * 1024


class Rejected(Exception):
    """Codex does not load the file."""


class ConfigReader:
    """Asks one app server, one question at a time."""

    def __init__(self, process: asyncio.subprocess.Process, file: Path) -> None:
        assert process.stdin
        assert process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout
        self._asked = 0
        self.file = file

    async def read(self, text: str, cwd: str | None = None) -> dict[str, Any]:
        """What is in force with this file.

        Raises:
            Rejected: nothing, since Codex refuses it.
        """
        answer = await self._config(text, cwd)
        config: dict[str, Any] = answer["config"]
        return config

    async def layer(self, text: str) -> dict[str, Any]:
        """What this file alone says, decoded by Codex.

        Raises:
            Rejected: it refuses the file.
        """
        answer = await self._config(text, None)
        layers = [layer["config"] for layer in answer["layers"] if layer["name"]["type"] == "user"]
        user: dict[str, Any] = layers[0]
        return user

    async def _config(self, text: str, cwd: str | None) -> dict[str, Any]:
        self.file.write_bytes(text.encode())
        return await self.call("config/read", {"includeLayers": True, "cwd": cwd})

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._asked += 1
        await self._send({"id": self._asked, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_LIMIT_S):
            while True:
                message = json.loads(await self._stdout.readline())
                if message.get("id") == self._asked and "method" not in message:
                    break
        if "error" in message:
            raise Rejected(message["error"]["message"])
        result: dict[str, Any] = message["result"]
        return result

    async def start(self) -> None:
        await self.call("initialize", {"clientInfo": {"name": "interop", "title": "interop", "version": "1"}})
        await self._send({"method": "initialized"})

    async def _send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        await self._stdin.drain()


@asynccontextmanager
async def config_reader(binary: Path, home: Path) -> AsyncIterator[ConfigReader]:
    """A strict app server with this home, until the block ends."""
    folder = home / ".codex"
    folder.mkdir(parents=True)
    process = await asyncio.create_subprocess_exec(
        str(binary), "app-server", "--strict-config",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        limit=MAX_LINE_BYTES, env=isolated_environment(home), cwd=home, start_new_session=True,
    )  # fmt: skip
    try:
        reader = ConfigReader(process, folder / "config.toml")
        await reader.start()
        yield reader
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
