"""Commands with a managed proxy: what to ask of a server, and a program inside that speaks with the proxy."""

import textwrap
import uuid
from typing import Any, Final

from tests.support.patience import patient
from tests.support.peer import Peer

LIMITED: Final[dict[str, Any]] = {
    "permissions": {
        "type": "managed",
        "file_system": {
            "type": "restricted",
            "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}],
        },
        "network": "enabled",
    },
    "cwd": "file:///",
    "workspaceRoots": [],
    "windowsSandboxLevel": "disabled",
}
SETTINGS: Final[dict[str, Any]] = {
    "enabled": True,
    "enableSocks5": True,
    "enableSocks5Udp": False,
    "allowUpstreamProxy": False,
    "dangerouslyAllowAllUnixSockets": False,
    "allowLocalBinding": False,
    "mode": "full",
}
# What a program inside has at hand.
INSIDE: Final = """
import errno, os, socket, sys
def to(variable):
    host, port = os.environ[variable].split("//")[1].rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    sock.settimeout(WAIT_S)
    return sock
def rest(sock):
    said = b""
    try:
        while got := sock.recv(4096):
            said += got
    except ConnectionResetError:
        pass
    return said
def one_answer(sock):
    said = b""
    while b"\\r\\n\\r\\n" not in said and (got := sock.recv(1)):
        said += got
    for line in said.lower().split(b"\\r\\n"):
        if line.startswith(b"content-length:"):
            said += sock.recv(int(line.split(b":")[1]), socket.MSG_WAITALL)
    return said
def http(text, end=False):
    with to("HTTP_PROXY") as sock:
        sock.sendall(text.encode("latin-1"))
        if end:
            sock.shutdown(socket.SHUT_WR)
        return (rest if end else one_answer)(sock).decode("latin-1")
def get(host, path="/", method="GET", *headers):
    more = "".join(f"{header}\\r\\n" for header in (f"Host: {host}", *headers, "Connection: close"))
    return http(f"{method} http://{host}{path} HTTP/1.1\\r\\n{more}\\r\\n")
def connect(target, after=""):
    return http(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n{after}", end=bool(after))
def socks(name, port, after=b"", kind=3):
    with to("ALL_PROXY") as sock:
        address = bytes([len(name)]) + name if kind == 3 else name
        sock.sendall(b"\\5\\1\\0\\5\\1\\0" + bytes([kind]) + address + port.to_bytes(2, "big") + after)
        sock.shutdown(socket.SHUT_WR)
        return rest(sock)
def code(answer):
    return answer.split(" ")[1] if isinstance(answer, str) else answer[3:4].hex()
""".replace("WAIT_S", str(patient(60)))


def proxied(timeout_ms: int | None = None, sandbox: object = LIMITED, **settings: Any) -> dict[str, Any]:
    """What `process/start` has besides, for a command with a proxy of these settings."""
    proxy: dict[str, Any] = {"proxy": SETTINGS | settings}
    if timeout_ms is not None:
        proxy["policyDecisionTimeoutMs"] = timeout_ms
    return {"sandbox": sandbox, "enforceManagedNetwork": True, "networkProxy": proxy}


async def begin(peer: Peer, code: str, *args: object, **more: Any) -> str:
    """A confined Python program with `http`, `get`, `connect`, `socks` and `code`; its process id."""
    name = uuid.uuid4().hex
    script = INSIDE + textwrap.dedent(code)
    await peer.start(name, "/usr/bin/python3", "-c", script, *map(str, args), **more)
    return name


async def finish(peer: Peer, name: str) -> str:
    """What it printed; it has to succeed."""
    await peer.closed(name)
    text = peer.output(name).decode()
    assert peer.exit_code(name) == 0, text
    return text


async def run(peer: Peer, code: str, *args: object, **more: Any) -> str:
    return await finish(peer, await begin(peer, code, *args, **more))


def decisions(peer: Peer, name: str) -> list[tuple[str, str, str]]:
    """Host, decision and reason of each record of a process."""
    found = [event["params"] for event in peer.events[name] if event["method"] == "network/policyDecision"]
    return [(record["host"], record["decision"], record["reason"]) for record in found]


async def question(peer: Peer, name: str, number: int = 1) -> dict[str, Any]:
    """The question about a process with this number, once it was asked."""

    def asked() -> list[dict[str, Any]]:
        events = peer.events.get(name, [])
        return [event for event in events if event["method"] == "network/policyRequest"]

    await peer.until(lambda: len(asked()) >= number)
    return asked()[number - 1]


async def decide(peer: Peer, asked: dict[str, Any], kind: str, reason: str | None = None) -> None:
    decision = {"type": kind} if reason is None else {"type": kind, "reason": reason}
    await peer.send({"id": asked["id"], "result": {"decision": decision}})
