"""The one message that every channel carries, and the capability that signs it. Pure module.

A token is an HMAC of (board, task, run, generation) under a key that only the dispatcher's home holds, so
nothing is stored for it. An envelope carries an HMAC of itself under that token, never the token. Its
arguments are signed as raw bytes, so no canonical form is needed.
"""

import hashlib
import hmac
import re
from typing import Any, Final

import msgspec

from holdfast import decoding
from holdfast.board.rules import verbs
from holdfast.board.rules.rows import JsonObject, TaskMessage
from holdfast.board.rules.verbs import BoardCaller
from holdfast.errors import HoldfastError, RemoteProtocolError, UsageError, face, from_kind, kind
from holdfast.unixrpc.calls import RpcMethod

SCHEMA: Final = 1
VERSION: Final = 1
MAX_ENVELOPE: Final = 512 * 1024  # bytes: the longest report with its metadata, and not much more
MAX_LINE: Final = MAX_ENVELOPE + 1024  # bytes: of a call that carries one
MAX_GRANT: Final = 64 * 1024  # bytes of run.json; a few paths and a token
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # of an envelope or a run; the former is also a file's name


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a worker's run, and the addresses of its channels.

    The complete grant is in the directory of its run. In the workspace, which others may read,
    `.holdfast/run.json` has it without the token, and `place` is the path of the complete one.
    """

    schema: int = SCHEMA
    board: str
    task: str
    run: str
    generation: int
    token: str
    socket: str  # empty when there is none
    outbox: str  # empty: beside this file
    command: list[str]  # the beginning of a command line that runs `holdfast`
    place: str = ""

    def __repr__(self) -> str:
        return f"Grant(run={self.run!r}, generation={self.generation})"  # logs and tracebacks show no token


def without_token(grant: Grant, place: str) -> Grant:
    """The part of it that anyone may read; the complete grant is at `place`."""
    return msgspec.structs.replace(grant, token="", place=place)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    v: int = VERSION
    id: str
    run: str
    generation: int
    verb: str
    args: msgspec.Raw
    mac: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error by its class and code; both are stable, the message is for people."""

    code: int
    kind: str
    message: str
    remedy: str | None = None


class HandoffAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Either the board's result or an error. The same envelope gets the same answer.

    `messages` are from people to the worker; it has seen them once it sends another envelope.
    """

    id: str
    result: JsonObject | None = None
    error: Problem | None = None
    messages: list[TaskMessage] = []


HAND_IN: Final = RpcMethod("handIn", Envelope, HandoffAnswer)
VERBS: Final = verbs.verbs_of(BoardCaller.WORKER)  # all that a worker may do


def read_args(verb: str, args: bytes | msgspec.Raw | JsonObject) -> Any:
    """Decode arguments as the verb's own struct, which checks their bounds.

    This is done before they are sent, and again before they are carried out.

    Raises:
        MethodNotFound: there is no such verb.
        UsageError: the arguments are not valid for it.
    """
    row = verbs.find_verb(verb, BoardCaller.WORKER)
    return verbs.settle(row, verbs.parse(row, args), 0)


def mint(key: bytes, board: str, task: str, run: str, generation: int) -> str:
    """The token of this run, different from that of any other."""
    return _mac(key, ["holdfast run", SCHEMA, board, task, run, generation])


def seal(grant: Grant, verb: str, args: JsonObject, *, id: str) -> Envelope:
    """Make a signed envelope. Raises UsageError for an invalid id, or arguments that are not JSON."""
    if not ID.fullmatch(id):
        raise UsageError("the id of an envelope is 1 to 64 of A-Z, a-z, 0-9, - and _")
    try:
        packed = msgspec.Raw(msgspec.json.encode(args))
    except (TypeError, ValueError, RecursionError):
        raise UsageError("the arguments are no JSON") from None
    unsigned = Envelope(id=id, run=grant.run, generation=grant.generation, verb=verb, args=packed, mac="")
    return msgspec.structs.replace(unsigned, mac=_signature(unsigned, grant.token))


def check(envelope: Envelope, token: str) -> bool:
    """Whether it was made with this token; compared in constant time."""
    return hmac.compare_digest(_signature(envelope, token).encode(), envelope.mac.encode())


def encode(envelope: Envelope) -> bytes:
    """Encode as one line without its newline. Raises UsageError when it is too large for any channel."""
    data = msgspec.json.encode(envelope)
    if len(data) > MAX_ENVELOPE:
        raise UsageError(f"an envelope has at most {MAX_ENVELOPE} bytes", remedy="say it in fewer words")
    return data


def decode(data: bytes) -> Envelope:
    """Raises RemoteProtocolError when this is not an envelope; the error repeats nothing of the data."""
    if len(data) > MAX_ENVELOPE:
        raise RemoteProtocolError(f"an envelope has at most {MAX_ENVELOPE} bytes")
    try:
        envelope = decoding.decode(data, Envelope)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise RemoteProtocolError("this is no envelope") from None
    check_shape(envelope)
    return envelope


def check_shape(envelope: Envelope) -> None:
    """Raises RemoteProtocolError when the version or an id is wrong."""
    if envelope.v != VERSION or not (ID.fullmatch(envelope.id) and ID.fullmatch(envelope.run)):
        raise RemoteProtocolError("this is no envelope of this version")


def refusal(id: str, exc: HoldfastError) -> HandoffAnswer:
    """The answer for a failed envelope."""
    problem = Problem(code=face(exc).rpc, kind=kind(exc), message=str(exc), remedy=exc.remedy)
    return HandoffAnswer(id=id, error=problem)


def error_of(problem: Problem) -> HoldfastError:
    """Recreate the error of the other side."""
    return from_kind(problem.kind, problem.message, problem.remedy)


def _signature(envelope: Envelope, token: str) -> str:
    head: list[str | int] = [envelope.v, envelope.id, envelope.run, envelope.generation, envelope.verb]
    return _mac(token.encode(), [*head, hashlib.sha256(bytes(envelope.args)).hexdigest()])


def _mac(key: bytes, parts: list[str | int]) -> str:
    return hmac.new(key, msgspec.json.encode(parts), hashlib.sha256).hexdigest()
