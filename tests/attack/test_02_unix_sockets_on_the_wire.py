"""Unix sockets granted over the protocol: `unixSockets` of a sandbox and `allowUnixSockets` of a managed
network let through what they name, with the network off and on, and nothing besides."""

import base64
import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import identity
from tests.support.exec_command import Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row

WAIT_S: Final = int(patient(60.0))
NETWORKS: Final = ["restricted", "enabled"]
FIELDS: Final = ["unixSockets", "allowUnixSockets"]
# One word for each path: what came of connecting to it.
REACH: Final = """
import errno, socket, sys
for path in sys.argv[1:]:
    with socket.socket(1) as sock:
        sock.settimeout(WAIT_S)
        print(errno.errorcode.get(sock.connect_ex(path), "done"))
""".replace("WAIT_S", str(patient(30)))


class Wire:
    """A server on two pipes, as one user, and one question at a time."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child
        self._number = 0

    def send(self, message: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(message).encode() + b"\n")
        self._child.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, "the server ended"
        message: dict[str, Any] = json.loads(line)
        return message

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The whole answer, which may be an error."""
        self._number += 1
        self.send({"id": self._number, "method": method, "params": params})
        while (message := self.receive()).get("id") != self._number:
            pass
        return message

    def run(self, *argv: str, **more: Any) -> list[str]:
        """The words that a command prints, or the refusal."""
        name = f"p{self._number}"
        asked = {"processId": name, "argv": list(argv), "cwd": "file:///", "tty": False}
        answer = self.call("process/start", {**asked, "env": {"PATH": "/usr/bin:/bin"}, **more})
        if "error" in answer:
            return ["refused", answer["error"]["message"]]
        output = b""
        while (message := self.receive()).get("method") != "process/closed":
            if message.get("method") == "process/output":
                output += base64.b64decode(message["params"]["chunk"])
        return output.decode().split()


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@pytest.fixture
def wire(anyone: Place) -> Iterator[Wire]:
    command = anyone.as_user([anyone.python, "-m", "holdfast", "serve", "--listen", "stdio"])
    with subprocess.Popen(
        command, cwd=anyone.workspace, env=anyone.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        # Whoever never answers is ended, and the reader hears of it.
        before = signal.signal(signal.SIGALRM, lambda *_: child.kill())
        signal.alarm(WAIT_S)
        try:
            made = Wire(child)
            assert "result" in made.call("initialize", {"clientName": "test", "resumeSessionId": None})
            made.send({"method": "initialized", "params": {}})
            yield made
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            child.kill()


@contextlib.contextmanager
def services(uid: int, *names: str) -> Iterator[list[socket.socket]]:
    """Servers of the host in a directory that no default policy lets a command write."""
    folder = identity.folder_for(uid)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        made = []
        for name in names:
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.bind(str(folder / name))
            sock.listen(16)
            sock.setblocking(False)
            identity.hand_over(Path(folder / name), uid)
            made.append(sock)
        yield made


def came(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def policy(network: str, field: str, *granted: str, **more: object) -> dict[str, Any]:
    """Everything may be read; the network as said; these sockets by that field."""
    sandbox: dict[str, Any] = {
        "permissions": {
            "type": "managed",
            "file_system": {
                "type": "restricted",
                "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}],
            },
            "network": network,
        },
        "cwd": "file:///",
        "workspaceRoots": [],
        "windowsSandboxLevel": "disabled",
    }
    if field == "unixSockets":
        return {"sandbox": {**sandbox, field: list(granted)}}
    managed = {"loopbackPorts": [], field: list(granted), **more}
    return {"sandbox": sandbox, "enforceManagedNetwork": True, "managedNetwork": managed}


@every_row("field", FIELDS)
@every_row("network", NETWORKS)
def test_what_is_named_is_reached_and_nothing_besides(
    anyone: Place, wire: Wire, network: str, field: str
) -> None:
    python = anyone.python
    with services(anyone.uid, "granted", "other") as (granted, other):
        names = [str(server.getsockname()) for server in (granted, other)]
        assert wire.run(python, "-c", REACH, *names) == ["done", "done"], "without a sandbox"
        assert (came(granted), came(other)) == (True, True)
        assert wire.run(python, "-c", REACH, *names, **policy(network, field)) == ["EACCES", "EACCES"]
        assert (came(granted), came(other)) == (False, False)
        told = wire.run(python, "-c", REACH, *names, **policy(network, field, names[0]))
        assert told == ["done", "EACCES"]
        assert (came(granted), came(other)) == (True, False)


@every_row("network", NETWORKS)
def test_a_grant_that_is_not_enforced_grants_nothing(anyone: Place, wire: Wire, network: str) -> None:
    """A managed network counts only with its switch; all sockets at once are never granted."""
    with services(anyone.uid, "granted") as (granted,):
        name = str(granted.getsockname())
        asked = {**policy(network, "allowUnixSockets", name), "enforceManagedNetwork": False}
        assert wire.run(anyone.python, "-c", REACH, name, **asked) == ["EACCES"]
        everything = policy(network, "allowUnixSockets", name, dangerouslyAllowAllUnixSockets=True)
        first, why = wire.run(anyone.python, "-c", REACH, name, **everything)
        assert (first, "lead out of the sandbox" in why) == ("refused", True)
        assert not came(granted)


@every_row("field", FIELDS)
def test_no_grant_is_for_a_socket_of_ours(anyone: Place, wire: Wire, field: str) -> None:
    with services(anyone.uid, "supervisor.sock") as (ours,):
        name = str(ours.getsockname())
        first, why = wire.run(anyone.python, "-c", REACH, name, **policy("restricted", field, name))
        assert (first, "Holdfast's own" in why) == ("refused", True), why
        assert not came(ours)
