"""A method on a unix socket of ours, the same for both sides: what it takes and what it answers. Pure module.

A message is one line that `wire.rpc` has accepted (no key twice, bounded size and depth). Its typed part is
then decoded from those very bytes, so a member of type `msgspec.Raw` is exactly what the peer wrote.

    → {"id": 1, "method": "status", "params": {"worker": "codex-1f"}}
    ← {"id": 1, "result": {…}}
    ← {"id": 1, "error": {"code": -32004, "message": "…", "data": {"kind": "NotFound", "remedy": "…"}}}
    ← {"method": "change", "params": {…}}        on a connection that asked for them
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from holdfast import decoding
from holdfast.errors import HoldfastError, RemoteProtocolError, UsageError, face, kind
from holdfast.wire import rpc
from holdfast.wire.rpc import RequestId

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RpcMethod(Generic[P, R]):
    """A row of a table of methods."""

    name: str
    params: type[P]
    result: type[R]


@dataclass(frozen=True, slots=True)
class Notice(Generic[P]):
    """What a server says unasked."""

    name: str
    params: type[P]


class _Members(msgspec.Struct):
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"{}")


_members = decoding.decoder(_Members)


def decode_params(message: bytes, wanted: type[P]) -> P:
    """Of a message that `wire.rpc` has accepted. Raises UsageError when they do not fit."""
    try:
        return decoding.decode(_members.decode(message).params, wanted)
    except msgspec.MsgspecError as exc:
        raise UsageError(str(exc)) from None


def decode_result(message: bytes, wanted: type[R]) -> R:
    """Of a response that `wire.rpc` has accepted. Raises RemoteProtocolError when it does not fit."""
    try:
        return decoding.decode(_members.decode(message).result, wanted)
    except msgspec.MsgspecError as exc:
        raise RemoteProtocolError(f"the answer is not what was asked for: {exc}") from None


def encode_failure(id_: RequestId, exc: HoldfastError) -> bytes:
    """The answer that says what is wrong; the other side gets an error of the same class."""
    remedy = None if exc.remedy is None else exc.remedy.encode(errors="replace").decode()
    return rpc.error(id_, face(exc).rpc, str(exc), {"kind": kind(exc), "remedy": remedy})
