"""Attempts inside of a sandbox to ask a host for more than a rule about requests allows: bytes, said to it.

Started with the ports and what may be asked; prints what each attempt was told.
"""

import json
import socket
import ssl
import sys

SCENE = json.loads(sys.argv[1])
NAMES = {"plain": "api.test", "tls": "tls.test"}


def say(server: str, data: bytes, *, tls: bool | None = None) -> str:
    """Send bytes as they are; what comes back until the end."""
    name = NAMES[server]
    told = b""
    try:
        sock = socket.create_connection((name, SCENE[server]), timeout=SCENE["wait"])
        if (server == "tls") if tls is None else tls:
            context = ssl.create_default_context()
            if server == "plain":
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            sock = context.wrap_socket(sock, server_hostname=name)
        with sock:
            sock.sendall(data)
            while some := sock.recv(65536):
                told += some
    except OSError as exc:
        told += f" {type(exc).__name__}".encode()
    return told.decode("latin-1")


def head(server: str, line: str, *headers: str, host: str | None = None) -> bytes:
    named = host or f"{NAMES[server]}:{SCENE[server]}"
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: {named}", *headers, "Connection: close", "", "")).encode(
        "latin-1"
    )


def attempts(server: str) -> dict[str, bytes]:
    name, port = NAMES[server], SCENE[server]
    fine = head(server, "GET /v1/fine").replace(b"Connection: close\r\n", b"")
    found = {
        "method": head(server, "DELETE /v1/x"),
        "lower-case": head(server, "get /v1/x"),
        "other-path": head(server, "GET /admin"),
        "case": head(server, "GET /V1/x"),
        "longer-name": head(server, "GET /v1x"),
        "dots": head(server, "GET /v1/../admin"),
        "encoded": head(server, "GET /v1/%2e%2e/admin"),
        "half-encoded": head(server, "GET /v1/.%2E/admin"),
        "encoded-slash": head(server, "GET /v1/..%2fadmin"),
        "encoded-twice": head(server, "GET /v1/%252e%252e/admin"),
        "semicolon": head(server, "GET /v1/..;/admin"),
        "backslash": head(server, "GET /v1/..\\admin"),
        "encoded-backslash": head(server, "GET /v1/..%5cadmin"),
        "two-slashes": head(server, "GET //admin/v1/"),
        "fragment": head(server, "GET /v1/#/../../admin"),
        "nul": head(server, "GET /v1/%00/../../admin"),
        "absolute": head(server, f"GET http://{name}:{port}/admin"),
        "absolute-elsewhere": head(server, "GET http://evil.test/v1/admin"),
        "absolute-upper": head(server, f"GET HTTP://{name}:{port}/admin"),
        "no-slash": head(server, f"GET http://{name}:{port}?/v1/admin"),
        "host": head(server, "GET /v1/admin", host="evil.test"),
        "two-hosts": head(server, "GET /v1/admin", "Host: evil.test"),
        "override": head(server, "GET /v1/admin", "X-HTTP-Method-Override: DELETE"),
        "original-url": head(server, "GET /v1/admin", "X-Original-URL: /admin"),
        "upgrade": head(server, "GET /admin", "Upgrade: websocket"),
        "pipelined": fine + head(server, "GET /admin"),
        "smuggled": head(server, "GET /v1/fine", "Content-Length: 4", "Transfer-Encoding: chunked")
        + b"0\r\n\r\n" + head(server, "GET /admin"),
        "hidden-in-a-body": head(server, "GET /v1/fine", "Content-Length: 0", "Content-Length: 60")
        + head(server, "GET /admin"),
        "connect": head(server, "CONNECT evil.test:443"),
        "everything": head(server, "OPTIONS *"),
        "odd-space": head(server, "GET /v1/\x85/../../admin"),
        "not-http": b"\x00\x01binary /admin\r\n\r\n",
        "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    }  # fmt: skip
    return found


def main() -> None:
    told = {}
    for server in NAMES:
        told[f"{server} control"] = say(server, head(server, "GET /v1/control"))
        for name, data in attempts(server).items():
            told[f"{server} {name}"] = say(server, data)
    told["plain by-tls"] = say("plain", head("plain", "GET /admin"), tls=True)
    told["tls by-plain"] = say("tls", head("tls", "GET /admin"), tls=False)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
