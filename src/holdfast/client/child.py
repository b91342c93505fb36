"""A server as our child: messages on its standard streams, its end with everything below it.

The child leads a process group of its own. Closing the link closes its input and sends SIGTERM to
the group, and after a grace period SIGKILL; whatever of the group outlives the child is killed too.
"""

import asyncio
import contextlib
import logging
import os
import signal
from typing import Final, cast

from holdfast.client.link import Receiver
from holdfast.client.target import CommandTarget
from holdfast.errors import ConnectionLost, HoldfastError, RemoteProtocolError, Unreachable
from holdfast.local import credentials
from holdfast.wire.lines import LineReader

log = logging.getLogger(__name__)

GRACE_S: Final = 2.0  # between SIGTERM and SIGKILL
MAX_LOGGED_BYTES: Final = 2048  # of one piece of the child's stderr

STDIN, STDOUT, STDERR = 0, 1, 2


async def start_child(target: CommandTarget, receiver: Receiver) -> "ChildLink":
    """Start the program and talk to it.

    Raises:
        Unreachable: it cannot be started.
    """
    environ = {name: value for name, value in os.environ.items() if name.upper() not in credentials.VARIABLES}
    environ.update(target.environ)
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.subprocess_exec(
            lambda: ChildLink(receiver), *target.argv, env=environ, cwd=target.cwd, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "a word, a variable or its directory is none"
        raise Unreachable(
            f"{target} cannot be started: {reason}", remedy="is it installed, and on PATH?"
        ) from None
    return link


class ChildLink(asyncio.SubprocessProtocol):
    """Newline framing on a child's pipes."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._reader = LineReader()
        self._error: HoldfastError | None = None
        self._over = False
        self._exited = asyncio.Event()
        self._transport: asyncio.SubprocessTransport
        self._input: asyncio.WriteTransport
        self._output: asyncio.ReadTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(STDIN))
        self._output = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(STDOUT))
        self._receiver.opened(self)

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        piece = cast(bytes, data)  # the pipes are opened without an encoding
        if fd == STDERR:
            log.debug("the server says", extra={"text": piece[:MAX_LOGGED_BYTES].decode(errors="replace")})
            return
        try:
            for message in self._reader.feed(piece):
                self._receiver.received(message)
        except RemoteProtocolError as exc:
            self.abort(exc)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == STDOUT:
            self._end(ConnectionLost("the server closed its output"))

    def process_exited(self) -> None:
        self._signal(signal.SIGKILL)  # what it left behind in its group
        self._exited.set()
        self._end(ConnectionLost("the server ended"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionLost("the server ended"))

    def pause_writing(self) -> None:
        self._receiver.writable(False)

    def resume_writing(self) -> None:
        self._receiver.writable(True)

    def send(self, message: bytes) -> None:
        if not self._input.is_closing():
            self._input.write(message + b"\n")

    def pause_reading(self) -> None:
        if not self._output.is_closing():
            self._output.pause_reading()

    def resume_reading(self) -> None:
        if not self._output.is_closing():
            self._output.resume_reading()

    def abort(self, error: HoldfastError) -> None:
        self._error = self._error or error
        self._signal(signal.SIGKILL)
        self._transport.close()
        self._end(error)

    async def aclose(self) -> None:
        self._error = self._error or ConnectionLost("the connection was closed here")
        self._input.close()
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._exited.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._exited.wait()
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), number)

    def _end(self, error: HoldfastError) -> None:
        if not self._over:
            self._over = True
            self._receiver.ended(self._error or error)
