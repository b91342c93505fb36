"""A link over the user's own ssh: lines on its pipes, and an explanation of its end."""

import asyncio
from typing import Final

from holdfast.client.links import ssh
from holdfast.client.links.ssh import SshTarget
from holdfast.client.links.target import Receiver
from holdfast.client.links.transport import ChildLink
from holdfast.errors import ConnectionLost, HoldfastError

_STDERR: Final = 2
MAX_GREETING: Final = 1024  # bytes of it that are inspected
LAST_WORDS_S: Final = 0.5  # for ssh's last errors after its exit; a shared connection holds the pipe open


class SshLink(ChildLink):
    """Before the first message the end is explained from ssh's output; later it is a lost connection."""

    def __init__(self, target: SshTarget, receiver: Receiver) -> None:
        super().__init__(receiver)
        self._target = target
        self._said = b""
        self._spoke = self._silent = False
        self._why: HoldfastError | None = None

    def data_received(self, data: bytes) -> None:
        """Reject first output that is no message: a shell on the way printed it."""
        if not self._spoke:
            self._spoke = bool(said := data.strip())
            if self._spoke and not said.startswith(b"{"):
                self.abort(ssh.explain_greeting(self._target, said[:MAX_GREETING].decode(errors="replace")))
                return
        super().data_received(data)

    def hear(self, piece: bytes) -> None:
        self._said = (self._said + piece)[-ssh.MAX_SAID_BYTES :]

    def _end(self, error: HoldfastError) -> None:
        """Report the end after ssh exited and its error output ended; if we ended the link, at once."""
        if self._error is not None or self._why is not None:
            super()._end(self._error or self._why or error)
        elif self._exited.is_set() and self._silent:
            self._explain()
        elif self._exited.is_set():
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._explain)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._silent = self._silent or fd == _STDERR
        if self._silent and self._exited.is_set():
            self._explain()
        super().pipe_connection_lost(fd, exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._exited.set()
        self._explain()
        super().connection_lost(exc)

    def _explain(self) -> None:
        if self._why is None:
            code = self._transport.get_returncode()
            lost: HoldfastError = ConnectionLost("the ssh connection was lost")
            self._why = (
                lost if self._spoke else ssh.explain(self._target, code, self._said.decode(errors="replace"))
            )
        self._end(self._why)
