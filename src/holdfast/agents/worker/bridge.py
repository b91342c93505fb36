"""Connects the pipes of a CLI with the executor of its commands: sends the token, then copies both ways.

Runs inside the worker's sandbox, as a file, with the standard library only: `bridge.py SOCKET TOKEN_FILE`.
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
    while not answer.endswith(b"\n"):  # read exactly one line: the rest belongs to the CLI
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
    """Copy between our standard streams and the socket, until either ends."""
    threading.Thread(target=send, args=(sock,), daemon=True).start()
    while data := sock.recv(CHUNK):
        while data:
            data = data[os.write(1, data) :]


def send(sock: socket.socket) -> None:
    """Send stdin to the socket, in a thread: an executor stops reading while its output is not read."""
    try:
        while data := os.read(0, CHUNK):
            sock.sendall(data)
    finally:
        os._exit(0)  # the CLI is gone: the executor sees the socket close, and ends its commands


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
