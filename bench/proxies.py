"""python -m bench.proxies: what a managed proxy costs, ours and the Codex CLI's own, in turns.

A confined command makes connections to a server on loopback through the proxy that its executor gave it,
by CONNECT and by SOCKS5, and one without a sandbox directly: the time to set one up with a byte each way, the
bytes of a long answer, and how long it takes to have many open at once, with a byte each way.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import connect

from tests.support.codex import requires_codex
from tests.support.managed import LIMITED, SETTINGS
from tests.support.servers import codex_server, holdfast_server

ANSWER_BYTES: Final = 256 * 1024 * 1024
CROWD: Final = 200  # connections that are open at once
# What a client measures, once it has `dial`, which makes a connection.
MEASURE: Final = f"""
times, crowd = [], []
for _ in range(count):
    began = time.perf_counter()
    with dial() as sock:
        sock.sendall(bytes(1))
        sock.recv(1)
        times.append(time.perf_counter() - began)
total, buffer = 0, bytearray(1 << 20)
with dial() as sock:
    sock.sendall(b"\\1")
    began = time.perf_counter()
    while length := sock.recv_into(buffer):
        total += length
rate, began = total / (time.perf_counter() - began), time.perf_counter()
crowd = [dial() for _ in range({CROWD})]
for sock in crowd:
    sock.sendall(bytes(1))
assert [sock.recv(1) for sock in crowd] == [b"x"] * len(crowd)
took = time.perf_counter() - began
for sock in crowd:
    sock.close()
"""
_CLIENT: Final = """
import json, os, socket, sys, time
port, count = int(sys.argv[2]), int(sys.argv[3])
def dial():
    if sys.argv[1] == "direct":
        return socket.create_connection(("127.0.0.1", port))
    variable = "HTTP_PROXY" if sys.argv[1] == "CONNECT" else "ALL_PROXY"
    host, at = os.environ[variable].split("//")[1].rsplit(":", 1)
    sock = socket.create_connection((host, int(at)))
    if variable == "HTTP_PROXY":
        sock.sendall(b"CONNECT localhost:%d HTTP/1.1\\r\\nHost: localhost:%d\\r\\n\\r\\n" % (port, port))
        said = b""
        while not said.endswith(b"\\r\\n\\r\\n"):
            said += sock.recv(1)
        assert b" 200 " in said, said
    else:
        sock.sendall(b"\\5\\1\\0")
        assert sock.recv(2) == b"\\5\\0"
        sock.sendall(b"\\5\\1\\0\\3\\x09localhost" + port.to_bytes(2, "big"))
        assert sock.recv(10, socket.MSG_WAITALL)[1] == 0
    return sock
"""
_SAY: Final = 'print(json.dumps({"times": times, "rate": rate, "crowd": took}))'
_PROGRAM: Final = _CLIENT + MEASURE + _SAY


class _Answer(socketserver.BaseRequestHandler):
    """A byte for a byte, and much for another one."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            if self.request.recv(1) == bytes(1):
                self.request.sendall(b"x")
                self.request.recv(1)
                return
            block = bytes(1 << 20)
            for _ in range(ANSWER_BYTES >> 20):
                self.request.sendall(block)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 512


@contextlib.contextmanager
def _serving() -> Iterator[int]:
    with _Server(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


async def _run(url: str, *words: str) -> dict[str, Any]:
    """What the client program measured as a confined process of this server."""
    async with connect(url, compression=None, max_size=None, proxy=None) as link:
        proxy = {"proxy": SETTINGS | {"domains": {"localhost": "allow"}}}
        start = {
            "processId": "p",
            "argv": ["/usr/bin/python3", "-c", _PROGRAM, *words],
            "cwd": "file:///",
            "env": {"PATH": "/usr/bin:/bin"},
            "tty": False,
            "sandbox": LIMITED,
            "enforceManagedNetwork": True,
            "networkProxy": proxy,
        }
        for message in (
            {"id": 1, "method": "initialize", "params": {"clientName": "bench"}},
            {"method": "initialized", "params": {}},
            {"id": 2, "method": "process/start", "params": start},
        ):
            await link.send(json.dumps(message))
        said = b""
        async for data in link:
            message = json.loads(data)
            if "error" in message:
                raise SystemExit(f"{url}: {message['error']}")
            if message.get("method") == "process/output":
                said += base64.b64decode(message["params"]["chunk"])
            if message.get("method") == "process/closed":
                break
    measured: dict[str, Any] = json.loads(said)
    return measured


async def measure(rounds: int, connections: int) -> dict[str, list[dict[str, Any]]]:
    """What was measured, by who made the connections."""
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top, _serving() as port:
        ours, theirs = holdfast_server(Path(top, "a")), codex_server(requires_codex(), Path(top, "b"))
        async with ours as one, theirs as other:
            for _ in range(rounds):
                words = (str(port), str(connections))
                alone = [sys.executable, "-c", _PROGRAM, "direct", *words]
                plain = await asyncio.to_thread(subprocess.check_output, alone)
                found.setdefault("directly", []).append(json.loads(plain))
                for way in ("CONNECT", "SOCKS5"):
                    for name, url in (("holdfast", one.url), ("codex", other.url)):
                        found.setdefault(f"{way}, {name}", []).append(await _run(url, way, *words))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.proxies", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=200)
    options = parser.parse_args()
    for name, runs in asyncio.run(measure(options.rounds, options.connections)).items():
        times = [one for run in runs for one in run["times"]]
        middle, rate = statistics.median(times) * 1e3, statistics.median(run["rate"] for run in runs) / 1e6
        crowd = statistics.median(run["crowd"] for run in runs) * 1e3
        print(
            f"{name:18} {middle:7.2f} ms to set up one, {rate:6.0f} MB/s, {crowd:6.1f} ms for {CROWD} at once"
        )


if __name__ == "__main__":
    main()
