"""From the pipes of a CLI to the executor of its commands: shows the token, then passes bytes both ways.

Runs inside of the worker's sandbox, as a file, on the standard library alone: `bridge.py SOCKET TOKEN_FILE`.
"""

import json
import os
import socket
import sys
import threading

CHUNK = 1 << 16


def main(path: str, key: str) -> int:
    with open(key, encoding="ascii") as file:
        token = file.read()
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError as exc:
        sys.stderr.write(f"holdfast: the executor of this run cannot be reached: {exc}\n")
        return 1
    first = {"id": 0, "method": "holdfast/authenticate", "params": {"token": token}}
    sock.sendall(json.dumps(first).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):  # one line, and no more before we ask for more
        data = sock.recv(1)
        if not data:
            return 1
        answer += data
    if b'"error"' in answer:
        sys.stderr.write(answer.decode("utf-8", "replace"))
        return 1
    pass_on(sock)
    return 0


def pass_on(sock: socket.socket) -> None:
    """Our standard streams and what is at the socket, until either ends."""
    threading.Thread(target=send, args=(sock,), daemon=True).start()
    while data := sock.recv(CHUNK):
        while data:
            data = data[os.write(1, data) :]


def send(sock: socket.socket) -> None:
    """Beside what is received: an executor whose output nobody takes does not listen either."""
    try:
        while data := os.read(0, CHUNK):
            sock.sendall(data)
    finally:
        os._exit(0)  # the CLI is gone: the executor hears of it, and ends what it runs


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
