"""How a client authenticates to a home's daemons: its first request carries a token. Pure module.

    → {"id": 1, "method": "holdfast/authenticate", "params": {"token": "…"}}
    ← {"id": 1, "result": {}}

A daemon of a version without tokens answers that there is no such method; the client then continues without.
"""

import hmac
from typing import Final

import msgspec

from holdfast.errors import HoldfastError, PeerRefused, face, kind
from holdfast.wire import rpc

METHOD: Final = "holdfast/authenticate"
MAX_LINE: Final = 1024  # bytes of the request; a token has 64


class AuthenticateParams(msgspec.Struct):
    token: str


class Authenticated(msgspec.Struct):
    pass


def check(line: bytes, token: str) -> rpc.RequestId:
    """Check the request in this line, which must carry the token, and return its id.

    Raises:
        PeerRefused: it does not carry the token, or is another request.
        RemoteProtocolError: it is not a message.
    """
    message = rpc.decode(line) if len(line) <= MAX_LINE else None
    if not isinstance(message, rpc.Request) or message.method != METHOD:
        raise PeerRefused("the first request to this daemon carries the token of its home")
    given = message.params.get("token") if isinstance(message.params, dict) else None
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), token.encode()):
        raise PeerRefused("this is not the token of this home")
    return message.id


def refusal(exc: HoldfastError) -> bytes:
    """The message to a peer that is not admitted, whatever it requested."""
    told = {"kind": kind(exc), "remedy": exc.remedy}
    return rpc.error(rpc.UNATTRIBUTED, face(exc).rpc, str(exc), told)


def is_refusal(message: rpc.ErrorResponse) -> bool:
    """Whether this is the message of `refusal`: the server does not admit us."""
    data = message.data
    named = data.get("kind") if isinstance(data, dict) else None
    return message.id == rpc.UNATTRIBUTED and named == PeerRefused.__name__
