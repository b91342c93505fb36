"""Hosts of made-up names on this machine's loopback: plain HTTP and TLS, with an authority of their own, and
a note of everything that reached them."""

import contextlib
import gzip
import json
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.patience import patient

NAMES: Final = ("api.test", "tls.test", "evil.test")
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Seen:
    """What reached a server: which, the name in the TLS hello if there was one, and the bytes."""

    server: str
    server_name: str | None
    data: bytes


@dataclass
class WebHosts:
    """Ports by name of server, the file of the authority, and what was seen."""

    authority: Path
    ports: dict[str, int] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    named: dict[int, str | None] = field(default_factory=dict)  # by whom: in the hellos of connections

    def profile(self, *allowed: str, private: bool = True, where: str = "127.0.0.1") -> str:
        """A profile in TOML that allows these hosts; every name is at this address."""
        rules = "".join(f'"{rule}" = "allow"\n' for rule in allowed)
        known = (*NAMES, *(rule.partition(":")[0] for rule in allowed))
        places = "".join(f'"{name}" = "{where}"\n' for name in dict.fromkeys(known) if "*" not in name)
        return (
            '[filesystem]\n":root" = "read"\n":workspace" = "write"\n":slash_tmp" = "write"\n'
            f"[hosts]\nprivate = {json.dumps(private)}\n{rules}[hosts.addresses]\n{places}"
            '"deep.wild.test" = "127.0.0.1"\n'
        )


@contextlib.contextmanager
def web_hosts(folder: Path) -> Iterator[WebHosts]:
    """The servers `plain` and `tls`, which may be allowed, and `evil`, which listens everywhere."""
    hosts = WebHosts(folder / "authority.pem")
    context = make_context(folder)
    context.sni_callback = lambda sock, told, _context: hosts.named.__setitem__(id(sock), told)
    with contextlib.ExitStack() as stack:
        for name, address in (("plain", "127.0.0.1"), ("tls", "127.0.0.1"), ("evil", "0.0.0.0")):  # noqa: S104
            listener = stack.enter_context(socket.create_server((address, 0), backlog=64))
            hosts.ports[name] = listener.getsockname()[1]
            thread = threading.Thread(
                target=_accept, args=(hosts, name, listener, context if name == "tls" else None), daemon=True
            )
            thread.start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
        yield hosts


def _accept(hosts: WebHosts, name: str, listener: socket.socket, context: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError):
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_serve, args=(hosts, name, sock, context), daemon=True).start()


def _serve(hosts: WebHosts, name: str, sock: socket.socket, context: ssl.SSLContext | None) -> None:
    """Answer every request; whatever came is noted, also if it is none."""
    data = b""
    try:
        sock.settimeout(patient(20))
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # an answer does not wait for the ACK of a ticket
        # Of one that is reset already the library would leave half an object behind.
        if context is not None and sock.recv(1, socket.MSG_PEEK):
            sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            sock.do_handshake()
        while some := sock.recv(65536):
            data += some
            while (end := data.find(b"\r\n\r\n")) >= 0:
                length = _LENGTH.search(data, 0, end)
                whole = end + 4 + (int(length[1]) if length else 0)
                if len(data) < whole:
                    break
                hosts.seen.append(Seen(name, hosts.named.get(id(sock)), data[:whole]))
                sock.sendall(_answer(data[:whole]))
                last, data = data[:end].lower(), data[whole:]
                if b"connection: close" in last or b" http/1.0\r\n" in last:
                    if isinstance(sock, ssl.SSLSocket):
                        sock.unwrap()
                    return
    except (OSError, ValueError):
        pass
    finally:
        hosts.seen.append(Seen(name, hosts.named.pop(id(sock), None), data))
        sock.close()


def _answer(request: bytes) -> bytes:
    path = request.split(b" ")[1] if b" " in request else b"/"
    if path.startswith(b"/redirect/"):
        return b"HTTP/1.1 302 Found\r\nLocation: " + path[10:] + b"\r\nContent-Length: 0\r\n\r\n"
    if path.startswith(b"/echo/"):
        return _echo(path.rpartition(b"/")[2].partition(b"?")[0], request)
    if path.startswith(b"/bytes/"):
        size = int(path[7:])
        return f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + bytes(size)
    if b"websocket" in request:
        return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    body = b"welcome " + path + b"\n"
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _echo(way: bytes, request: bytes) -> bytes:
    """The request itself, said back in one way or another."""
    lines = b", ".join(request.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:])
    ok = b"HTTP/1.1 200 OK\r\n"
    if way == b"header":
        return ok + b"X-Echo: " + lines + b"\r\nContent-Length: 0\r\n\r\n"
    if way == b"reason":
        return b"HTTP/1.1 200 " + lines + b"\r\nContent-Length: 0\r\n\r\n"
    if way == b"split":
        pieces = [request[at : at + 3] for at in range(0, len(request), 3)]
        chunks = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
        return ok + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    if way == b"trailer":
        framing = b"Transfer-Encoding: chunked\r\nTrailer: X-Echo\r\n\r\n2\r\nok\r\n0\r\n"
        return ok + framing + b"X-Echo: " + lines + b"\r\n\r\n"
    body, more = request, b""
    if way == b"gzip":
        body, more = gzip.compress(request), b"Content-Encoding: gzip\r\n"
    if way == b"cut":
        body = request[: request.index(b"Bearer ") + 34]  # as servers quote the beginning of what is wrong
    part = re.search(rb"(?im)^(?:request-)?range: bytes=(\d+)-(\d+)", request)  # Apache takes both
    if part:
        body = body[int(part[1]) : int(part[2])]
    return ok + more + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def make_context(folder: Path) -> ssl.SSLContext:
    """A certificate for all names, by an authority that exists for this."""

    def openssl(words: str, *more: str) -> None:
        subprocess.run(
            ["openssl", *words.split(), *more],
            check=True,
            capture_output=True,
            timeout=patient(30),
            cwd=folder,
        )

    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(f"req -x509 {key} -days 2 -keyout ca.key -out authority.pem -subj", "/CN=Authority of the tests")
    openssl(f"req {key} -keyout server.key -out server.csr -subj", "/CN=tls.test")
    names = ",".join(f"DNS:{name}" for name in (*NAMES, "*.wild.test"))
    (folder / "names.txt").write_text(f"subjectAltName={names}\n", "utf-8")
    openssl(
        "x509 -req -in server.csr -CA authority.pem -CAkey ca.key -days 2 -extfile names.txt -out server.pem"
    )
    (folder / "authority.pem").chmod(0o644)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context
