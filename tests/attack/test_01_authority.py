"""A confined command asks Holdfast itself to run something without a sandbox.

Authority is a capability: whoever is more confined than a daemon is not served, whatever uid or token it has,
and whoever does not know the token of a home is not served by its daemons.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.agents.supervisor import background, daemons
from holdfast.local import homekey
from tests.support import identity, warm
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES

WITHIN_S = patient(60)
BACKENDS = ("namespaces", "bwrap", "landlock")

# Asks a unix socket to run a command without a sandbox, showing a token if there is one.
ASK_SUPERVISOR = """
import json, socket, sys
path, token, mark = sys.argv[1:]
sock = socket.socket(socket.AF_UNIX); sock.connect(path); said = sock.makefile("r")
def ask(number, method, params):
    sock.sendall(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\\n")
    print(said.readline())
if token: ask(1, "holdfast/authenticate", {"token": token})
ask(2, "run", {"agent": "shell", "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}, "prompt": "touch " + mark,
               "unconfined": True, "id": "asked"})
ask(3, "wait", {"worker": "asked"})
"""


@dataclass(frozen=True, slots=True)
class Attacker:
    """A user with a home of Holdfast, outside of what commands may write."""

    uid: int
    base: Path

    @property
    def home(self) -> Path:
        return self.base / "state"

    @property
    def mark(self) -> Path:
        """What only a command outside of the sandbox can make."""
        return self.base / "escaped"

    @property
    def environment(self) -> dict[str, str]:
        user = self.base / "user"
        return {"PATH": os.environ["PATH"], "HOME": str(user), "HOLDFAST_HOME": str(self.home)}

    def command(self, *words: str) -> list[str]:
        return [identity.python(self.uid), "-P", "-m", "holdfast", *words]

    def run(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            identity.command_as(self.uid, list(argv)),
            env=self.environment,
            cwd=self.base / "project",
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )

    def holdfast(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """As `run` with `command`, without its start."""
        where = self.base / "project"
        return warm.of(self.uid).run(words, env=self.environment, cwd=where, timeout=WITHIN_S)

    def confined(self, *argv: str, options: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
        return self.holdfast("exec", "--network", "on", *options, "--", *argv)

    def start_worker(self, *more: str) -> tuple[str, ...]:
        return ("worker", "run", "shell", f"touch {self.mark}", "--unconfined", *more)


@pytest.fixture(params=IDENTITIES)
def attacker(request: pytest.FixtureRequest) -> Iterator[Attacker]:
    with attacking(request.param) as found:
        yield found


@contextlib.contextmanager
def attacking(uid: int) -> Iterator[Attacker]:
    base = identity.folder_for(uid)
    for name in ("user", "project", "state"):
        (base / name).mkdir(mode=0o700)
    identity.hand_over(base, uid)
    try:
        yield Attacker(uid, base)
    finally:
        for daemon in daemons.find(base / "state"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon.process.pid, signal.SIGKILL)
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def serving(attacker: Attacker, listen: str) -> Iterator[str]:
    argv = attacker.command("serve", "--no-hint", "--listen", listen)
    with subprocess.Popen(
        identity.command_as(attacker.uid, argv),
        env=attacker.environment,
        cwd=attacker.base,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.mark.parametrize("listen", ["ws://127.0.0.1:0", "unix://{base}/s"])
def test_a_confined_command_asks_an_exec_server(attacker: Attacker, listen: str) -> None:
    with serving(attacker, listen.format(base=attacker.base)) as url:
        asking = attacker.command("exec", "--env", url, "--full-access", "--", "touch", str(attacker.mark))
        refused = attacker.confined(*asking)
        assert refused.returncode != 0
        assert not attacker.mark.exists(), refused.stderr
        allowed = attacker.run(*asking)
        assert attacker.mark.exists(), allowed.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_on_every_backend(backend: str) -> None:
    with attacking(identity.USER) as attacker, serving(attacker, "ws://127.0.0.1:0") as url:
        asking = attacker.command("exec", "--env", url, "--full-access", "--", "touch", str(attacker.mark))
        refused = attacker.confined(*asking, options=("--backend", backend))
        assert not attacker.mark.exists()
        assert "more confined" in refused.stderr or "token" in refused.stderr, refused.stderr


def test_a_confined_command_starts_a_worker(attacker: Attacker) -> None:
    allowed = attacker.holdfast(*attacker.start_worker())
    assert attacker.mark.exists(), allowed.stderr  # and the daemons run now
    attacker.mark.unlink()
    other = {"HOLDFAST_HOME": str(attacker.base / "user" / "other")}
    for more in ((), ("--home", str(attacker.home))):
        refused = attacker.confined(*attacker.command(*attacker.start_worker(*more)))
        assert refused.returncode != 0
        away = attacker.confined(
            "env", *(f"{k}={v}" for k, v in other.items()), *attacker.command(*attacker.start_worker(*more))
        )
        assert away.returncode != 0
    assert not attacker.mark.exists()


def test_neither_a_token_nor_a_uid_alone_is_enough() -> None:
    """As if the token had leaked, and as if a process of the user without the token asked."""
    with attacking(identity.USER) as attacker:
        assert attacker.holdfast(*attacker.start_worker()).returncode == 0
        attacker.mark.unlink()
        token = (attacker.home / homekey.ACCESS).read_bytes().hex()
        python = identity.python(attacker.uid)
        # Outside of its home, so that a sandbox which hides that is not what refuses it.
        path = attacker.base / "project" / "s"
        os.link(background.supervisor_socket(attacker.home), path)
        asking = (python, "-c", ASK_SUPERVISOR, str(path))
        leaked = attacker.confined(*asking, token, str(attacker.mark))
        assert not attacker.mark.exists(), leaked.stdout
        without = attacker.run(*asking, "", str(attacker.mark))
        assert "token of its home" in without.stdout
        wrong = attacker.run(*asking, "0" * 64, str(attacker.mark))
        assert "not the token" in wrong.stdout
        assert not attacker.mark.exists()
        knowing = attacker.run(*asking, token, str(attacker.mark))
        assert attacker.mark.exists(), knowing.stdout


def test_no_policy_shows_a_home(attacker: Attacker) -> None:
    """Neither the one in use nor one that a daemon was given, whatever is allowed around them."""
    other = attacker.base / "user" / "other"
    assert attacker.holdfast(*attacker.start_worker("--home", str(other))).returncode == 0
    try:
        keys = [other / homekey.ACCESS, attacker.home / homekey.ACCESS]
        shutil.copy(keys[0], keys[1])
        identity.hand_over(attacker.home, attacker.uid)
        for key in keys:
            assert attacker.run("cksum", str(key)).returncode == 0  # the control
            for options in ((), ("--allow-read", str(attacker.base)), ("--allow-write", str(key.parents[1]))):
                assert attacker.confined("cksum", str(key), options=options).returncode != 0
            for flag in ("--allow-read", "--allow-write"):
                for granted in (key, key.parent):
                    refused = attacker.confined("true", options=(flag, str(granted)))
                    assert "Holdfast's own" in refused.stderr
        link = attacker.base / "project" / "link"
        link.symlink_to(keys[0])
        refused = attacker.confined("cksum", str(link), options=("--allow-read", str(link)))
        assert "Holdfast's own" in refused.stderr
    finally:
        for daemon in daemons.find(other):
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon.process.pid, signal.SIGKILL)


def test_a_loopback_port_is_never_a_daemon_of_ours(attacker: Attacker) -> None:
    """The relay of a granted port is not confined: a daemon would take it for its user."""
    with socket.socket() as taken:  # a port that a daemon listens on only later, when the command runs
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    ask = (
        "import socket, sys, time; path, port = sys.argv[1], int(sys.argv[2])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "s = socket.create_connection(('127.0.0.1', port))\n"
        "s.sendall(b'GET /readyz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "print(s.recv(100))"
    )
    inside = (identity.python(attacker.uid), "-c", ask, "x", str(port))
    argv = attacker.command("exec", "--loopback-port", str(port), "--", *inside)
    with subprocess.Popen(
        identity.command_as(attacker.uid, argv),
        env=attacker.environment,
        cwd=attacker.base / "project",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        with serving(attacker, f"ws://127.0.0.1:{port}"):
            said, _ = command.communicate("\n", timeout=WITHIN_S)
            assert "200 OK" not in said
            refused = attacker.holdfast("exec", "--loopback-port", str(port), "--", "true")
            assert "a daemon of Holdfast" in refused.stderr
            control = attacker.run(
                identity.python(attacker.uid), "-c", ask.replace("sys.stdin.readline()", ""), "x", str(port)
            )
            assert "200 OK" in control.stdout, control.stderr


def test_a_token_is_replaced_when_a_supervisor_starts(attacker: Attacker) -> None:
    assert attacker.holdfast(*attacker.start_worker()).returncode == 0
    first = (attacker.home / homekey.ACCESS).read_bytes()
    assert attacker.holdfast("down", "--workers").returncode == 0
    assert attacker.holdfast(*attacker.start_worker()).returncode == 0
    assert (attacker.home / homekey.ACCESS).read_bytes() != first
    assert (attacker.home / homekey.ACCESS).stat().st_mode & 0o777 == 0o600
    for daemon in daemons.find(attacker.home):
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{daemon.process.pid}/{name}").read_bytes()
            assert (attacker.home / homekey.ACCESS).read_bytes().hex().encode() not in shown
