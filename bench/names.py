"""python -m bench.names: what hosts by name cost, against the same without them, in turns.

Three pairs: setting up a connection and one byte each way, to a server on loopback, directly and by name from
inside of `holdfast exec`; the bytes of a long answer on the same two ways; and `holdfast exec -- true` with
the network off and with hosts allowed, a thousand of them.
"""

import argparse
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
from typing import Final

ANSWER_BYTES: Final = 512 * 1024 * 1024
NAMES: Final = 1000
_BLOCK: Final = bytes(1024 * 1024)
_CLIENT: Final = """
import json, socket, sys, time
address = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), socket.AF_INET, socket.SOCK_STREAM)[0][4]
times = []
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    with socket.create_connection(address) as sock:
        sock.sendall(bytes(1))
        sock.recv(1)
        times.append(time.perf_counter() - began)
count, buffer = 0, bytearray(1 << 20)
with socket.create_connection(address) as sock:
    sock.sendall(b"\\1")
    began = time.perf_counter()
    while length := sock.recv_into(buffer):
        count += length
json.dump({"times": times, "rate": count / (time.perf_counter() - began)}, sys.stdout)
"""


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


def measure(rounds: int, connections: int) -> dict[str, dict[str, list[float]]]:
    """Every measure, for each of its two sides."""
    found: dict[str, dict[str, list[float]]] = {
        "connection_s": {"direct": [], "by name": []},
        "rate": {"direct": [], "by name": []},
        "start_s": {"network off": [], "by name": []},
    }
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top, _server() as port:
        profile = Path(top, "profile.toml")
        others = "".join(f'"h{number}.test" = "allow"\n' for number in range(NAMES - 1))
        profile.write_text(
            f'[filesystem]\n":root" = "read"\n[hosts]\nprivate = true\n"b.test:{port}" = "allow"\n{others}'
            '[hosts.addresses]\n"b.test" = "127.0.0.1"\n',
            "ascii",
        )
        off = Path(top, "off.toml")
        off.write_text('[filesystem]\n":root" = "read"\n', "ascii")
        for _ in range(rounds):
            client = (sys.executable, "-c", _CLIENT)
            words = ["127.0.0.1", str(port), str(connections)]
            direct = subprocess.run([*client, *words], stdout=subprocess.PIPE, check=True).stdout
            named = _exec("--profile", str(profile), "--", *client, "b.test", *words[1:], cwd=top)
            for side, told in (("direct", json.loads(direct)), ("by name", json.loads(named))):
                found["connection_s"][side] += told["times"]
                found["rate"][side].append(told["rate"])
            for side, limits in (("network off", off), ("by name", profile)):
                for _ in range(5):
                    began = time.perf_counter()
                    _exec("--profile", str(limits), "--", "true", cwd=top)
                    found["start_s"][side].append(time.perf_counter() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.names", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=300)
    options = parser.parse_args()
    found = measure(options.rounds, options.connections)
    for name, unit, scale in (
        ("connection_s", "ms to set up a connection", 1e3),
        ("rate", "MB/s", 1e-6),
        ("start_s", "ms for exec", 1e3),
    ):
        for side, values in found[name].items():
            middle = statistics.median(values) * scale
            print(f"{unit:26} {side:12} median {middle:8.2f}  of {len(values)}")


if __name__ == "__main__":
    main()
