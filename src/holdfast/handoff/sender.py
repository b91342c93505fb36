"""The worker's side: send one envelope by whichever channel accepts it.

The socket is tried first. If a sandbox refuses it, there is no listener, or the other side dies before it has
answered, the same envelope goes to the outbox. Because of its id, it takes effect only once.
"""

import contextlib
import errno
import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.board.rules.rows import JsonObject
from holdfast.errors import NotFound, OperationFailed, RemoteProtocolError, Unreachable, UsageError
from holdfast.handoff import envelope
from holdfast.handoff.envelope import HAND_IN, MAX_GRANT, SCHEMA, Envelope, Grant, HandoffAnswer
from holdfast.local.atomicfile import replace_file
from holdfast.unixrpc.calls import decode_result
from holdfast.wire import rpc
from holdfast.wire.lines import LineReader

Channel: TypeAlias = Literal["auto", "socket", "outbox"]

VARIABLE: Final = "HOLDFAST_RUN"  # the path of a run.json
PLACE: Final = Path(".holdfast") / "run.json"
WAIT_S: Final = 10.0  # for an answer; the dispatcher looks into outboxes several times a second
MAX_ANSWER: Final = 16 * 1024 * 1024  # bytes; the board's own bound on what it shows is below that
FIRST_LOOK_S: Final = 0.01  # for an answer in a file
LOOK_S: Final = 0.1  # the longest pause between two looks

ACCEPTED: Final = "accepted"  # member of a result: the envelope is in the outbox and will be read there


class Sender:
    """Sends envelopes for one run."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant

    @classmethod
    def find(cls, start: Path | None = None, environ: Mapping[str, str] | None = None) -> "Sender":
        """Find the grant by $HOLDFAST_RUN, or by the nearest `.holdfast/run.json` in or above `start`.

        Raises:
            NotFound: there is none: this is not a workspace of a run.
            UsageError: it is damaged, or of another version.
        """
        named = (os.environ if environ is None else environ).get(VARIABLE)
        here = (start or Path.cwd()).absolute()
        places = [Path(named)] if named else [folder / PLACE for folder in (here, *here.parents)]
        for place in places:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return cls(_find_grant(place))
        raise NotFound(
            "this is no workspace of a run: there is no .holdfast/run.json here or above",
            remedy=f"go to the task's workspace, or name its run.json in {VARIABLE}",
        )

    def send(
        self,
        verb: str,
        args: JsonObject,
        *,
        id: str | None = None,
        channel: Channel = "auto",
        wait_s: float = WAIT_S,
    ) -> HandoffAnswer:
        """Send an envelope, and wait up to `wait_s` for the answer on each channel that is tried.

        If the outbox took it and there is no answer in time, the result is {"accepted": "outbox"}: it is on
        disk and will be read. With an `id` the call can be repeated; it takes effect once and the answer is
        the same.

        Raises:
            MethodNotFound, UsageError: there is no such verb, or these are not its arguments.
            Unreachable: no channel took it, or with `channel="socket"` there was no answer.
        """
        envelope.read_args(verb, args)
        letter = envelope.seal(self.grant, verb, args, id=id or _fresh_id())
        data = envelope.encode(letter)
        if channel != "outbox":
            try:
                return self._over_socket(letter, wait_s)
            except OSError as exc:
                if channel == "socket":
                    raise Unreachable(
                        f"nobody answered on the socket: {exc.strerror or exc}", remedy="--channel outbox"
                    ) from None
        self._into_outbox(letter, data)
        return self._from_answers(letter, wait_s, keep=id is not None)

    def _over_socket(self, letter: Envelope, wait_s: float) -> HandoffAnswer:
        """Raises OSError when there is no answer, for any reason; an error response is not an answer."""
        if not self.grant.socket:
            raise FileNotFoundError(errno.ENOENT, "this run has no socket")
        until = time.monotonic() + wait_s
        lines, said = LineReader(max_bytes=MAX_ANSWER), list[bytes]()
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(wait_s)
                sock.connect(self.grant.socket)
                sock.sendall(rpc.request(letter.id, HAND_IN.name, letter) + b"\n")
                while not said:
                    sock.settimeout(max(0.001, until - time.monotonic()))
                    if not (part := sock.recv(65536)):
                        raise ConnectionResetError(errno.ECONNRESET, "it was closed before the answer")
                    said = lines.feed(part)
            message = rpc.decode(said[0])
            if isinstance(message, rpc.Response) and message.id == letter.id:
                return decode_result(said[0], HAND_IN.result)
            reason = message.message if isinstance(message, rpc.ErrorResponse) else "no answer to this"
        except RemoteProtocolError as exc:
            reason = str(exc)
        raise ConnectionResetError(errno.EPROTO, f"what came is no answer: {reason}")

    def _into_outbox(self, letter: Envelope, data: bytes) -> None:
        """Write the envelope to disk under its name, atomically."""
        try:
            replace_file(os.path.join(self.grant.outbox, f"{letter.id}.json"), data)
        except OSError as exc:
            raise Unreachable(
                f"the outbox does not take it: {exc.strerror}",
                remedy="let the worker write to its workspace, or allow it the socket",
            ) from None

    def _from_answers(self, letter: Envelope, wait_s: float, *, keep: bool) -> HandoffAnswer:
        """Wait for the answer in its file; if no caller knows the id, remove the file after reading."""
        place = Path(self.grant.outbox).parent / "answers" / f"{letter.id}.json"
        until = time.monotonic() + wait_s
        pause = FIRST_LOOK_S
        while (answer := _read_answer(place)) is None or answer.id != letter.id:
            left = until - time.monotonic()
            if left <= 0:
                return HandoffAnswer(id=letter.id, result={ACCEPTED: "outbox"})
            time.sleep(min(pause, left))
            pause = min(pause * 2, LOOK_S)
        if not keep:
            with contextlib.suppress(OSError):
                place.unlink()
        return answer


def _find_grant(place: Path) -> Grant:
    """The grant in this file, or the complete one that it refers to."""
    grant = _grant(place)
    if grant.token or not grant.place:
        return grant
    try:
        return _grant(Path(grant.place))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"the run {grant.run} is over, or is another worker's: {grant.place} is not there",
            remedy=f"unset {VARIABLE}, and report from the workspace of your own task",
        ) from None


def _grant(place: Path) -> Grant:
    try:
        with place.open("rb") as file:
            data = file.read(MAX_GRANT + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as exc:
        raise OperationFailed(f"cannot read {place}: {exc.strerror}") from None
    try:
        grant = decoding.decode(data, Grant)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UsageError(f"{place} does not describe a run") from None
    if not grant.outbox:  # for a worker on another machine: its location was unknown when the grant was made
        grant = msgspec.structs.replace(grant, outbox=str(place.absolute().parent / "outbox"))
    if grant.schema != SCHEMA:
        raise UsageError(f"{place} is of version {grant.schema}, not {SCHEMA}", remedy="upgrade holdfast")
    return grant


def _fresh_id() -> str:
    return f"{time.time_ns():x}-{secrets.token_hex(6)}"


def _read_answer(place: Path) -> HandoffAnswer | None:
    """None while there is no answer; the file appears atomically."""
    try:
        with place.open("rb") as file:
            return decoding.decode(file.read(MAX_ANSWER + 1), HandoffAnswer)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
