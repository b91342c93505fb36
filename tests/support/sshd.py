"""A real `sshd` on loopback for one user: us; its keys, and the client's configuration, in one place."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.patience import patient
from tests.support.without_linux import linux_python

WAIT_S: Final = patient(20.0)


class SshServer:
    """`wrapper` is an `ssh` for PATH that knows host `box` and nothing of whoever runs the tests."""

    def __init__(self, folder: Path, port: int, home: str) -> None:
        self.folder, self.port = folder, port
        self.bin = folder / "bin"
        self.home = folder / home  # over there
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Of a client."""
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.folder / "client"),
            "HOLDFAST_HOME": str(self.folder / "client" / "hf"),
            "LANG": "C.UTF-8",
        }

    def start(self) -> None:
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
        assert sshd
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + WAIT_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < until, (self.folder / "sshd.log").read_text("utf-8")
            time.sleep(0.02)

    def cut(self) -> None:
        """Every connection, but not what they started: as a network that is gone."""
        assert self.process is not None
        for pid in sessions_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None:
            self.cut()
            self.process.terminate()
            self.process.wait(WAIT_S)
            self.process = None


def sessions_of(pid: int) -> list[int]:
    """The processes of sshd below its listener, not what they run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text("utf-8", "replace").partition("(")[2].rpartition(")")
            parent = int(rest.split()[1])
            if name.startswith("sshd") and parent == pid:
                own = int(stat.parent.name)
                found += [*sessions_of(own), own]
    return found


@contextlib.contextmanager
def ssh_server(folder: Path, home: str = "home") -> Iterator[SshServer]:
    if shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") is None or shutil.which("ssh") is None:
        pytest.skip("OpenSSH is not installed: install openssh-server and openssh-client")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = SshServer(folder, probe.getsockname()[1], home)
    for place in (server.bin, server.home, folder / "client"):
        place.mkdir(parents=True)
    (folder / "start").symlink_to(server.home)  # sshd takes no space in an argument
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # where root's sshd locks itself up
    _write_files(server)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _write_files(server: SshServer) -> None:
    folder = server.folder
    (folder / "sshd_config").write_text(
        f"""
ListenAddress 127.0.0.1
Port {server.port}
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
Subsystem sftp internal-sftp -d {folder}/start
SetEnv "HOME={server.home}" "HOLDFAST_HOME={server.home}/hf" PATH={server.bin}:/usr/bin:/bin
""",
        "utf-8",
    )
    (folder / "known_hosts").write_text(
        f"[127.0.0.1]:{server.port} {(folder / 'host.pub').read_text('utf-8')}", "utf-8"
    )
    (folder / "ssh_config").write_text(
        f"""
Host box
  HostName 127.0.0.1
  Port {server.port}
  User {getpass.getuser()}
Host behind
  HostName 127.0.0.1
  Port {server.port}
  User {getpass.getuser()}
  ProxyJump box
Host shared
  HostName 127.0.0.1
  Port {server.port}
  User {getpass.getuser()}
  ControlMaster auto
  ControlPath {folder}/shared.sock
  ControlPersist 60
Host refused
  HostName 127.0.0.1
  Port 1
Host *
  IdentityFile {folder}/user
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
""",
        "utf-8",
    )
    _program(server.bin / "ssh", f'exec /usr/bin/ssh -F {folder}/ssh_config "$@"')
    _program(server.bin / "scp", f'exec /usr/bin/scp -F {folder}/ssh_config "$@"')
    _program(server.bin / "holdfast", f'exec {linux_python()} -P -m holdfast "$@"')


def _program(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n", "utf-8")
    file.chmod(0o755)
