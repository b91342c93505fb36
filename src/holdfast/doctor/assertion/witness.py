"""The outside part of an assertion: a forbidden directory, a listener, the controls, the clean-up."""

import contextlib
import inspect
import json
import os
import secrets
import shutil
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.doctor.assertion import probe
from holdfast.doctor.assertion.claims import Answers, BootClaim, ClaimAttempt, ClaimKind, Role, parse
from holdfast.errors import OperationFailed
from holdfast.sandbox.policy.paths import within

PREFIX: Final = "holdfast-assert-"
START_S: Final = 15  # for the program inside, besides its addresses; it takes a tenth of a second
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - writable in containers where nothing else is
_POLL_S: Final = 0.05
_TEMPORARY: Final = "/tmp"  # noqa: S108 - writable in most sandboxes, whatever TMPDIR says
_SOURCE: Final = f"{inspect.getsource(probe)}\nmain(sys.argv[1])\n"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where state is kept that must outlive a run."""
    named = environ.get("XDG_STATE_HOME", "")
    top = Path(named) if named.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".local/state"
    return top / "holdfast"


def temporary(environ: Mapping[str, str]) -> str:
    """The directory that Codex uses for temporary files."""
    return os.path.realpath(environ.get("TMPDIR") or _TEMPORARY)


@contextlib.contextmanager
def workplace(cwd: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """An empty directory that no usual sandbox makes writable; removed afterwards.

    Raises:
        OperationFailed: no such directory can be made.
    """
    usual = (os.path.realpath(cwd), temporary(environ), _TEMPORARY)
    for top in (Path("/var/tmp"), state_folder(environ), _MEMORY):  # noqa: S108 - seldom writable inside
        if any(within(os.path.realpath(top), place) for place in usual):
            continue
        try:
            top.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX, dir=top)))
        except OSError:
            continue
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    raise OperationFailed(
        "there is no directory to work in that a sandbox would not make writable anyway",
        remedy="set XDG_STATE_HOME to a directory of yours outside of /tmp and of the workspace",
    )


def outside(place: Path) -> Path:
    """A directory in a workplace that no command may write.

    If the workplace is in shared memory, which any command may write, it is /var/tmp.
    """
    if within(str(place), str(_MEMORY)):
        return Path("/var/tmp")  # noqa: S108 - it is only named
    folder = place / "outside"
    folder.mkdir()
    return folder


@dataclass(frozen=True, slots=True)
class LoopListener:
    """A listener that sends a random word to each client."""

    url: str
    word: str

    def heard(self, tried: ClaimAttempt) -> ClaimAttempt:
        """The attempt, which counts as a success only if our word was received."""
        if tried.ok and tried.said != self.word:
            return ClaimAttempt(False, "", "somebody else answered")
        return replace(tried, said="connected") if tried.ok else tried


@contextlib.contextmanager
def listening(*, needed: bool) -> Iterator[LoopListener]:
    """Listen on the loopback address, if needed: a sandbox around us may forbid it.

    Raises:
        OperationFailed: this process may not listen.
    """
    if not needed:
        yield LoopListener("", "")
        return
    word = secrets.token_hex(8)

    class _Say(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(word.encode())

    try:
        opened = socketserver.TCPServer(("127.0.0.1", 0), _Say)
    except OSError as exc:
        raise OperationFailed(
            f"cannot listen on the loopback address: {exc.strerror}",
            remedy="holdfast doctor assert --expect confined",
        ) from None
    with opened as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
        thread.start()
        try:
            yield LoopListener(f"tcp://127.0.0.1:{server.server_address[1]}", word)
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True)
class Questions:
    """The claims about files and addresses, as one program to run inside; used once."""

    claims: Sequence[BootClaim]
    listener: LoopListener
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def seconds(self) -> int:
        """The program ends by itself after this."""
        return START_S + round(probe.REACH_S * len(self._of(ClaimKind.REACHES)))

    def argv(self) -> tuple[str, ...]:
        asked = {
            "nonce": self.nonce,
            "name": self._name,
            "seconds": self.seconds,
            "writes": [[claim.subject, claim.dry] for claim in self._of(ClaimKind.WRITES)],
            "reaches": [claim.subject for claim in self._of(ClaimKind.REACHES)],
        }
        return (sys.executable, "-I", "-S", "-B", "-c", _SOURCE, json.dumps(asked))

    def outside(self) -> dict[BootClaim, ClaimAttempt]:
        """Make the same attempts without a sandbox."""
        found = {}
        for claim in self._of(ClaimKind.WRITES):
            with self.cleared():
                found[claim] = _make_attempt(
                    probe.write(claim.subject, self._name, self.nonce, dry=claim.dry)
                )
        for claim in self._of(ClaimKind.REACHES):
            found[claim] = self._heard(claim, _make_attempt(probe.reach(claim.subject)))
        return found

    @contextlib.contextmanager
    def cleared(self) -> Iterator[None]:
        """Remove whatever was written during the block."""
        try:
            yield
        finally:
            for claim in self._of(ClaimKind.WRITES):
                if self._is_lasting(claim):
                    Path(self._target(claim)).unlink(missing_ok=True)

    def answers(self, output: str) -> tuple[dict[BootClaim, ClaimAttempt], Answers] | None:
        """The printed answers, completed by what is visible outside; to be called before the clean-up."""
        writes, reaches = self._of(ClaimKind.WRITES), self._of(ClaimKind.REACHES)
        told = parse(output, f"{probe.MARK}{self.nonce[::-1]} ", writes=len(writes), reaches=len(reaches))
        if told is None:
            return None
        found = {
            claim: replace(tried, lasting=self._is_lasting(claim))
            for claim, tried in zip(writes, told.writes, strict=True)
        }
        for claim, tried in zip(reaches, told.reaches, strict=True):
            found[claim] = self._heard(claim, tried)
        return found, told

    @property
    def _name(self) -> str:
        return f".{PREFIX}{self.nonce}"

    def _of(self, kind: ClaimKind) -> list[BootClaim]:
        return [claim for claim in self.claims if claim.kind is kind]

    def _heard(self, claim: BootClaim, tried: ClaimAttempt) -> ClaimAttempt:
        return self.listener.heard(tried) if claim.role is Role.LOOPBACK else tried

    def _target(self, claim: BootClaim) -> str:
        return os.path.join(claim.subject, self._name) if os.path.isdir(claim.subject) else claim.subject

    def _is_lasting(self, claim: BootClaim) -> bool | None:
        """Whether our file is there; None if none is created, because the file existed before."""
        if claim.dry:
            return None
        try:
            with open(os.open(self._target(claim), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                found = file.read(len(self.nonce) + 1)
        except OSError:
            return False
        return True if found == self.nonce.encode() else None


def _make_attempt(told: probe.Tried) -> ClaimAttempt:
    ok, error, said = told
    return ClaimAttempt(ok, error, said)
