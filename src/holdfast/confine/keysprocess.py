"""The process that serves the host names of one command of a server, when keys stay outside of the command.

The keys are in this process's memory; the server holds them no longer than a start takes. They reach the
process over a socket pair: nothing is in its arguments, its environment or a file. It does the same as the
process that `names.py` forks for `holdfast exec`, but is a program of its own, since a server never forks.
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast.confine import names
from holdfast.confine.keys import KeptKeys
from holdfast.egress.asking.asker import Ask
from holdfast.egress.asking.questions import HostQuestion
from holdfast.egress.keys.placeholders import Key
from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.policy.hostwish import HostWish

_LENGTH: Final = struct.Struct("!I")
_MAX_TOLD: Final = 16 * 1024 * 1024  # room for thousands of rules, and a key of a header's length for each
# The variables of our environment that it needs: which certificates to trust, and how to reach the network.
_PASSED: Final = frozenset(
    {
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "PATH", "LANG", "LC_ALL", "TMPDIR"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    }
)
_BOOT: Final = (
    f"import sys; sys.path.append({str(Path(holdfast.__file__).parent.parent)!r}); "
    "from holdfast.confine.keysprocess import main; main()"
)


class KeysProcess:
    """The server's end of this process, from its start to its final traffic report; uses the running loop."""

    def __init__(self, hosts: HostWish, keys: KeptKeys) -> None:
        """Raises OSError."""
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._sock, theirs = socket.socketpair()
        self._sock.setblocking(False)
        self._told: bytes = _encode(hosts, keys)
        self._heard = b""
        self._asking: dict[int, asyncio.Task[None]] = {}
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-I", "-c", _BOOT, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: text for name, text in os.environ.items() if name.upper() in _PASSED},
                cwd="/",
            )

    async def wait_ready(self) -> None:
        """Wait until the process has the keys and the certificate file exists. Raises SandboxUnavailable."""
        told, self._told = self._told, b""
        heard = b""
        try:
            async with asyncio.timeout(names.READY_S):
                await self._loop.sock_sendall(self._sock, _LENGTH.pack(len(told)) + told + names.LOAD)
                while names.READY not in heard:
                    if not (some := await self._loop.sock_recv(self._sock, 4096)):
                        raise ConnectionResetError
                    heard += some
        except OSError:
            raise SandboxUnavailable("the process that keeps keys did not come up") from None

    def serve(self, fds: Sequence[int], ask: Ask | None = None) -> None:
        """Have the process serve these sockets of the command, which stay the caller's.

        The message is so small that it fits into the socket buffer. `ask` is called about hosts that no rule
        decides on, if the command's policy says that a person is asked.
        """
        with contextlib.suppress(OSError):  # the process is gone, so the names are not answered
            socket.send_fds(self._sock, [names.SERVE], list(fds))
        if ask is not None:
            self._loop.add_reader(self._sock.fileno(), self._hear, ask)

    def _hear(self, ask: Ask) -> None:
        try:
            some = self._sock.recv(65536)
        except OSError:
            some = b""
        if not some:
            self._loop.remove_reader(self._sock.fileno())
        *lines, self._heard = (self._heard + some).split(b"\n")
        for line in lines:
            if line.startswith(names.ASKS):
                question = HostQuestion(**json.loads(line[1:]))
                self._asking[question.id] = self._loop.create_task(self._ask(ask, question))
            elif line.startswith(names.WITHDRAWS) and (asking := self._asking.pop(int(line[1:]), None)):
                asking.cancel()

    async def _ask(self, ask: Ask, question: HostQuestion) -> None:
        answer = (await ask(question)).value
        self._asking.pop(question.id, None)
        with contextlib.suppress(OSError):  # the process is gone, and the answer is not needed
            self._sock.send(f"{question.id} {answer}\n".encode())

    async def end(self) -> dict[str, Any] | None:
        """After the command's end: let what it sent arrive; return the traffic, None if unknown."""
        self._loop.remove_reader(self._sock.fileno())
        for asking in self._asking.values():
            asking.cancel()
        heard = self._heard
        try:
            self._sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(names.STOP_S):
                while some := await self._loop.sock_recv(self._sock, 65536):
                    heard += some
                    if len(heard) > names.MAX_REPORT:
                        break
            told: dict[str, Any] | None = json.loads(heard.rpartition(b"\n")[2])
        except (OSError, ValueError):
            told = None
        await self.aclose()
        return told

    async def aclose(self) -> None:
        """Kill the process, and remove its file."""
        self._sock.close()
        self._process.kill()
        self._keys.forget()
        await asyncio.to_thread(self._process.wait)


def _encode(hosts: HostWish, keys: KeptKeys) -> bytes:
    return json.dumps(
        {
            "hosts": [hosts.allow, hosts.deny, hosts.private, hosts.addresses, hosts.secrets, hosts.own],
            "limits": hosts.limits,
            "ask": hosts.ask_s,
            "keys": [
                [key.name, key.value, key.placeholder, sorted(key.targets), sorted(key.plain)]
                for key in keys.keys
            ],
            "folder": keys.folder,
            "trusted": keys.trusted,
        }
    ).encode()


def _decode(told: bytes) -> tuple[HostWish, KeptKeys]:
    read: Mapping[str, Any] = json.loads(told)
    allow, deny, private, addresses, secrets, own = read["hosts"]
    given = tuple((name, at) for name, at in addresses)
    rules = (tuple(allow), tuple(deny), private, given, tuple(secrets), tuple(own))
    hosts = HostWish(*rules, limits=tuple(read["limits"]), ask_s=read["ask"])
    keys = tuple(
        Key(name, value, placeholder, frozenset(map(tuple, targets)), frozenset(map(tuple, plain)))
        for name, value, placeholder, targets, plain in read["keys"]
    )
    return hosts, KeptKeys(keys, read["folder"], tuple(read["trusted"]), ())


def main() -> None:
    """Run as that process, on the socket that the argument names."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    kernel.forbid_inspection()  # before there is anything to see
    (length,) = _LENGTH.unpack(_receive(sock, _LENGTH.size))
    if length > _MAX_TOLD:
        raise SystemExit(1)
    hosts, keys = _decode(_receive(sock, length))
    names.end_with_parent(keys)
    names.serve(sock, hosts, keys)


def _receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (some := sock.recv(count - len(data))):
            raise SystemExit(1)  # the server is gone
        data += some
    return data
