"""A method on our unix sockets, the same for both sides: its parameters and its result. Pure module.

A message is one line that `wire.rpc` has accepted (no repeated key, bounded size and depth). Its typed part
is then decoded from the same bytes, so a member of type `msgspec.Raw` is exactly what the peer wrote.

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
    """A notification of a server."""

    name: str
    params: type[P]


class _Members(msgspec.Struct):
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"{}")


_members = decoding.decoder(_Members)


def decode_params(message: bytes, wanted: type[P]) -> P:
    """Decode the params of a message that `wire.rpc` has accepted. Raises UsageError if they do not fit."""
    try:
        return decoding.decode(_members.decode(message).params, wanted)
    except msgspec.MsgspecError as exc:
        raise UsageError(str(exc)) from None


def decode_result(message: bytes, wanted: type[R]) -> R:
    """Decode the result of a response that `wire.rpc` has accepted.

    Raises RemoteProtocolError if it does not fit.
    """
    try:
        return decoding.decode(_members.decode(message).result, wanted)
    except msgspec.MsgspecError as exc:
        raise RemoteProtocolError(f"the answer is not what was asked for: {exc}") from None


def encode_failure(id_: RequestId, exc: HoldfastError) -> bytes:
    """Encode an error as the answer; the other side raises an error of the same class."""
    remedy = None if exc.remedy is None else exc.remedy.encode(errors="replace").decode()
    return rpc.error(id_, face(exc).rpc, str(exc), {"kind": kind(exc), "remedy": remedy})
