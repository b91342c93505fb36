"""python -m bench.names: what hosts by name cost, against the same without them, in turns.

Setting up a connection and one byte each way, to a server on loopback, directly and by name from inside of
`holdfast exec`; the bytes of a long answer; many connections open at once; and a thousand names, each of
them asked for and dialled. Then `holdfast exec -- true` with the network off and with those hosts allowed. If
the Codex CLI is at hand, its managed proxy and ours are measured in the same rounds.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench import proxies
from tests.support.codex import find_codex

ANSWER_BYTES: Final = 512 * 1024 * 1024
NAMES: Final = 1000
_BLOCK: Final = bytes(1024 * 1024)
_CLIENT: Final = """
import json, socket, sys, time
name, port, count, asked = sys.argv[1], *map(int, sys.argv[2:])
address = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
def dial():
    return socket.create_connection(address)
"""
_ASK: Final = """
began = time.perf_counter()
for number in range(asked):
    where = f"h{number}.test" if name.endswith(".test") else name
    with socket.create_connection((where, port)) as sock:
        sock.sendall(bytes(1))
        assert sock.recv(1) == b"x"
each = (time.perf_counter() - began) / asked
print(json.dumps({"times": times, "rate": rate, "crowd": took, "each": each}))
"""
_PROGRAM: Final = _CLIENT + proxies.MEASURE + _ASK
# Measure, its unit, what a value is multiplied by, and whether more is better.
_ROWS: Final = (
    ("connection", "ms to set up a connection", 1e3),
    ("rate", "MB/s of a long answer", 1e-6),
    ("crowd", f"ms for {proxies.CROWD} connections at once", 1e3),
    ("each", f"ms for each of {NAMES} names, asked for and dialled", 1e3),
    ("start", "ms for exec -- true", 1e3),
)
Found = dict[str, dict[str, list[float]]]  # by measure and side


@contextlib.contextmanager
def _server() -> Iterator[int]:
    """Answers a byte with a byte, another one with much; its port."""

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            if sock.recv(1) == bytes(1):
                sock.sendall(b"x")
                sock.recv(1)
            else:
                for _ in range(ANSWER_BYTES // len(_BLOCK)):
                    sock.sendall(_BLOCK)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _exec(*words: str, cwd: str) -> str:
    command = [sys.executable, "-P", "-m", "holdfast", "exec", *words]
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout


def _profile(port: int | None, addresses: dict[str, str]) -> str:
    """The thousand hosts, at this port if there is one."""
    ending = "" if port is None else f":{port}"
    rules = "".join(f'"h{number}.test{ending}" = "allow"\n' for number in range(NAMES - 1))
    known = "".join(f'"{name}" = "{where}"\n' for name, where in addresses.items())
    return (
        f'[filesystem]\n":root" = "read"\n[hosts]\nprivate = true\n"b.test{ending}" = "allow"\n{rules}'
        f"[hosts.addresses]\n{known}"
    )


def _note(found: Found, side: str, told: dict[str, Any]) -> None:
    found.setdefault("connection", {}).setdefault(side, []).extend(told["times"])
    for measure in ("rate", "crowd", "each"):
        if measure in told:
            found.setdefault(measure, {}).setdefault(side, []).append(told[measure])


def measure(rounds: int, connections: int) -> Found:
    """Every measure, for each of its sides."""
    found: Found = {}
    codex = find_codex()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top, _server() as port:
        dialled, started, off = Path(top, "dialled.toml"), Path(top, "started.toml"), Path(top, "off.toml")
        everywhere = {f"h{number}.test": "127.0.0.1" for number in range(NAMES - 1)} | {"b.test": "127.0.0.1"}
        dialled.write_text(_profile(port, everywhere), "ascii")
        started.write_text(_profile(None, {"b.test": "127.0.0.1"}), "ascii")
        off.write_text('[filesystem]\n":root" = "read"\n', "ascii")
        for _ in range(rounds):
            client = (sys.executable, "-c", _PROGRAM)
            words = [str(port), str(connections), str(NAMES - 1)]
            direct = subprocess.run([*client, "127.0.0.1", *words], stdout=subprocess.PIPE, check=True).stdout
            _note(found, "directly", json.loads(direct))
            named = _exec("--profile", str(dialled), "--", *client, "b.test", *words, cwd=top)
            _note(found, "by name", json.loads(named))
            for side, limits in (("network off", off), ("by name", started)):
                for _ in range(5):
                    began = time.perf_counter()
                    _exec("--profile", str(limits), "--", "true", cwd=top)
                    found.setdefault("start", {}).setdefault(side, []).append(time.perf_counter() - began)
            if codex is not None:
                for side, runs in asyncio.run(proxies.measure(1, connections)).items():
                    if side.startswith("CONNECT"):
                        _note(found, f"proxy{side.partition(',')[2]}", runs[0])
    return found


def _bars(found: Found) -> list[dict[str, object]]:
    """As `tools.benchmarks` takes them over."""
    pairs = (
        ("directly", "by name", "direct"),
        ("network off", "by name", "direct"),
        ("proxy codex", "proxy holdfast", "codex"),
    )
    return [
        {
            "measure": f"names-{name}",
            "against": against,
            "rival_p50": statistics.median(found[name][rival]) * scale,
            "ours_p50": statistics.median(found[name][ours]) * scale,
        }
        for name, _, scale in _ROWS
        for rival, ours, against in pairs
        if {rival, ours} <= found[name].keys()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.names", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--json", type=Path, help="write the medians there, for tools.benchmarks")
    options = parser.parse_args()
    found = measure(options.rounds, options.connections)
    for name, unit, scale in _ROWS:
        for side, values in found[name].items():
            middle = statistics.median(values) * scale
            print(f"{unit:52} {side:14} median {middle:8.2f}  of {len(values)}")
    if options.json is not None:
        options.json.write_text(json.dumps({"bars": _bars(found)}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
