"""SWE-ReX as a third contestant: its server from its own environment, `POST /execute` over one connection.

It lives in an environment of its own because its dependencies are none of ours. Its official client opens a
new connection per call; keeping one open is in its favour.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.client import Failed
from bench.measures import MS, Plan
from bench.servers import READY_WITHIN_S, ROOT, environment, stop

ENVIRONMENT: Final = ROOT / ".venv-swerex"
PINNED: Final = "swe-rex==1.4.0"
INSTALL_WITHIN_S: Final = 300.0
REPLY_WITHIN_S: Final = 30.0
POLL_S: Final = 0.05
MAX_REPLY: Final = 1 << 16  # an execute reply has some two hundred bytes


def install() -> Path:
    """The server program of the pinned version, installed by name when it is not there yet.

    Raises:
        Failed: pip could not install it, for instance without a package index.
    """
    program, mark = ENVIRONMENT / "bin" / "swerex-remote", ENVIRONMENT / "installed"
    if mark.exists() and mark.read_text("utf-8") == PINNED:
        return program
    print(f"installing {PINNED} into {ENVIRONMENT.name}", file=sys.stderr)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n", "utf-8")
    pip = [os.fspath(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", PINNED]
    try:
        subprocess.run(pip, check=True, timeout=INSTALL_WITHIN_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Failed(f"pip could not install {PINNED}") from error
    mark.write_text(PINNED, "utf-8")
    return program


class SweRex:
    """A kept HTTP connection to a running SWE-ReX server."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps({"command": ["/bin/true"]}).encode()
        self._request = (
            f"POST /execute HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-API-Key: {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def close(self) -> None:
        self._socket.close()

    def execute_true(self, plan: Plan) -> list[float]:
        """Milliseconds per `/bin/true`, from the request sent to the reply read."""
        samples = []
        for _ in range(plan.warm + plan.starts):
            began = time.perf_counter()
            self._socket.sendall(self._request)
            reply = self._reply()
            samples.append((time.perf_counter() - began) * MS)
            if b'"exit_code":0' not in reply:
                raise Failed(f"SWE-ReX answered {reply[:300]!r}")
        return samples[plan.warm :]

    def _reply(self) -> bytes:
        received = b""
        while len(received) < MAX_REPLY:
            received += (chunk := self._socket.recv(MAX_REPLY))
            head, split, body = received.partition(b"\r\n\r\n")
            if not chunk:
                break
            if split and len(body) >= content_length(head):
                return received
        raise Failed(f"SWE-ReX did not finish its reply: {received[:300]!r}")


def content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@contextlib.contextmanager
def running(home: Path) -> Iterator[SweRex]:
    """A SWE-ReX server with a connection to it, until the end of the block.

    Raises:
        Failed: it could not be installed or did not start.
    """
    program, token = install(), secrets.token_hex(16)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    argv = [os.fspath(program), "--host", "127.0.0.1", "--port", str(port), "--auth-token", token]
    with (home / "swerex.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=environment(home), cwd=home, stdout=log, stderr=log, start_new_session=True
        )
    try:
        client = connect(process, port, token)
        try:
            yield client
        finally:
            client.close()
    finally:
        stop(process)


def connect(process: subprocess.Popen[bytes], port: int, token: str) -> SweRex:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError):
            return SweRex(port, token)
        time.sleep(POLL_S)
    raise Failed("SWE-ReX did not start to listen")
