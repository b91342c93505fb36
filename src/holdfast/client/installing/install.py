"""Install Holdfast on a machine that is reached by ssh: inspect it, ask for consent, copy and install.

The user's own ssh and scp are run, with the user's configuration, agent, jumps and shared connections; they
never prompt. Their output is read up to a bound, and is never executed.
"""

import contextlib
import os
import secrets
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.client.installing import bundle, farside, found
from holdfast.client.installing.found import FarState
from holdfast.client.links import ssh
from holdfast.client.links.ssh import SshTarget
from holdfast.errors import HoldfastError, OperationFailed
from holdfast.local.owned import owned_program

LOOK_S: Final = 60.0
STOP_S: Final = 120.0
COPY_S: Final = 900.0  # 20 MiB on a slow line
INSTALL_S: Final = 1500.0  # longer than the program on the other machine waits for pip
MAX_SAID: Final = 256 * 1024  # bytes of a machine's output: our answers are shorter


@dataclass(frozen=True, slots=True)
class Installed:
    """`fresh`: it was not there before. `fetched`: some of it came from a package index there.

    `kept`: number of older versions that processes still run from.
    """

    name: str
    fresh: bool = True
    fetched: bool = False
    kept: int = 0


def look(target: SshTarget) -> FarState:
    """Inspect the other machine.

    Raises:
        Unreachable: it cannot be reached; the text says why.
        RemoteProtocolError: its answer is malformed.
    """
    code, said, error = _run(target.shell(), LOOK_S, found.LOOK)
    if code != 0:
        raise ssh.explain(target, code, error)
    return found.read_state(said)


def install(target: SshTarget, state: FarState, agree: Callable[[list[str]], bool]) -> Installed | None:
    """Install this very Holdfast there.

    `agree` gets a description of what will be put where. The result is None if it refuses.

    Raises:
        OperationFailed: it cannot be done; the text says why. The previous installation is unchanged.
        Unreachable: the machine cannot be reached any more.
    """
    found.check(target, state)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as above:
        folder = Path(above) / f"{found.STAGE}{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        packed = bundle.pack(folder)
        if (state.name, state.holdfast) == (packed.name, packed.version):
            return Installed(packed.name, fresh=False)
        if not agree(found.describe(target, state, packed.name, packed.version, packed.bytes)):
            return None
        shutil.copyfile(farside.__file__, folder / found.PROGRAM)
        code, _, error = _run(target.copy(str(folder)), COPY_S)
        if code != 0:
            with contextlib.suppress(HoldfastError):
                _run(target.shell(), LOOK_S, f"cd && rm -rf {folder.name}\n")
            raise ssh.explain(target, code, error)
        script = found.write_install(folder.name, packed.name, packed.version)
        code, said, error = _run(target.shell(), INSTALL_S, script)
        if code == 255:
            raise ssh.explain(target, code, error)
    answer = found.read_answer(target, said)
    return Installed(packed.name, True, answer.fetched, answer.kept)


def stop(target: SshTarget) -> None:
    """End the server that is kept there, and all its processes.

    Raises:
        OperationFailed: that takes too long.
        Unreachable: it cannot be reached; the text says why, or is the machine's own message.
    """
    code, _, error = _run(target.argv("--stop"), STOP_S)
    if code != 0:
        raise ssh.explain(target, code, error)


def uninstall(target: SshTarget) -> None:
    """Remove the installation there.

    Raises:
        OperationFailed: a process runs from it, or it cannot be removed.
        Unreachable: it cannot be reached; the text says why.
    """
    program = Path(farside.__file__).read_text("utf-8")
    code, said, error = _run(target.shell(), LOOK_S, found.write_uninstall(program))
    if code == 255:
        raise ssh.explain(target, code, error)
    found.read_answer(target, said)


def _run(argv: Sequence[str], limit_s: float, script: str = "") -> tuple[int, str, str]:
    """Run a program; return its exit code, its output and the end of its error output."""
    until = time.monotonic() + limit_s
    try:
        with owned_program(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            if process.stdin is None or process.stdout is None or process.stderr is None:
                raise AssertionError("pipes were asked for")
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(script.encode())  # a pipe has room for 64 KiB of it
            heard = _Heard(process.stdout.fileno(), process.stderr.fileno())
            if not heard.listen(until):
                raise OperationFailed(f"{argv[0]} takes more than {limit_s:g} s")
            code = process.wait(max(until - time.monotonic(), 1.0))
            heard.drain()
    except (OSError, subprocess.TimeoutExpired):
        raise OperationFailed(f"{argv[0]} cannot be run", remedy=f"install {argv[0]}") from None
    return code, heard.said.decode("utf-8", "replace"), heard.errors.decode("utf-8", "replace")


class _Heard:
    """Both outputs of a program, up to their bounds."""

    def __init__(self, output: int, error: int) -> None:
        self._output, self._error = output, error
        self.said = self.errors = b""
        for fd in (output, error):
            os.set_blocking(fd, False)

    def listen(self, until: float) -> bool:
        """Read until the output ends; False if it does not end in time.

        Raises:
            OperationFailed: the output is longer than any answer of ours.
        """
        with selectors.DefaultSelector() as waiting:
            for fd in (self._output, self._error):
                waiting.register(fd, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                for key, _ in waiting.select(left):
                    data = os.read(key.fd, 65536)
                    if key.fd == self._error:
                        self.errors = (self.errors + data)[-ssh.MAX_SAID_BYTES :]
                    self.said += data if key.fd == self._output else b""
                    if len(self.said) > MAX_SAID:
                        raise OperationFailed("the other machine says more than an answer has room for")
                    if not data:
                        waiting.unregister(key.fd)
                        if key.fd == self._output:
                            return True
        return False

    def drain(self) -> None:
        """Read the remaining errors without waiting: a shared ssh connection holds their pipe open."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._error, 65536):
                self.errors = (self.errors + data)[-ssh.MAX_SAID_BYTES :]
