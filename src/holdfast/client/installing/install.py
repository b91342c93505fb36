"""Holdfast installed on a machine that is reached by ssh: looked at, told, copied and set up.

The user's own ssh and scp are run, with the user's configuration, agent, jumps and shared connections; they
ask nothing. What they print is read up to a bound, and is only ever read.
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
INSTALL_S: Final = 1500.0  # longer than the program over there waits for pip
MAX_SAID: Final = 256 * 1024  # bytes of what a machine says: more is no answer of ours


@dataclass(frozen=True, slots=True)
class Installed:
    """`fresh`: it was not there before. `fetched`: some of it from a package index there.

    `kept`: older versions that something still runs from.
    """

    name: str
    fresh: bool = True
    fetched: bool = False
    kept: int = 0


def look(target: SshTarget) -> FarState:
    """What is there.

    Raises:
        Unreachable: why it cannot be reached.
        RemoteProtocolError: its answer makes no sense.
    """
    code, said, error = _run(target.shell(), LOOK_S, found.LOOK)
    if code != 0:
        raise ssh.explain(target, code, error)
    return found.read_state(said)


def install(target: SshTarget, state: FarState, agree: Callable[[list[str]], bool]) -> Installed | None:
    """Install this very Holdfast there, if whoever is told what will be put where agrees.

    Raises:
        OperationFailed: it cannot be done, and why; what was there is as it was.
        Unreachable: it is not reached any more.
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
    """End the server that is kept there, and all that it runs.

    Raises:
        OperationFailed: that takes too long.
        Unreachable: why it cannot be reached, or what it says.
    """
    code, _, error = _run(target.argv("--stop"), STOP_S)
    if code != 0:
        raise ssh.explain(target, code, error)


def uninstall(target: SshTarget) -> None:
    """Remove what was installed there.

    Raises:
        OperationFailed: something runs from it, or it cannot be removed.
        Unreachable: why it cannot be reached.
    """
    program = Path(farside.__file__).read_text("utf-8")
    code, said, error = _run(target.shell(), LOOK_S, found.write_uninstall(program))
    if code == 255:
        raise ssh.explain(target, code, error)
    found.read_answer(target, said)


def _run(argv: Sequence[str], limit_s: float, script: str = "") -> tuple[int, str, str]:
    """Exit code, output and the end of what was said about errors."""
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
    """Both outputs of a program, as far as they are kept."""

    def __init__(self, output: int, error: int) -> None:
        self._output, self._error = output, error
        self.said = self.errors = b""
        for fd in (output, error):
            os.set_blocking(fd, False)

    def listen(self, until: float) -> bool:
        """Until the output ends; False if it does not in time.

        Raises:
            OperationFailed: it is more than anything of ours says.
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
        """What is there of the errors; a shared connection that stays has their pipe open."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._error, 65536):
                self.errors = (self.errors + data)[-ssh.MAX_SAID_BYTES :]
