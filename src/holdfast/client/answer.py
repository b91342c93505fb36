"""Answers of a server as typed values. Pure module.

Other servers may say more than we know, or less where the protocol lets them: unknown members are
ignored and optional ones may be absent.
"""

from typing import TypeVar

import msgspec

from holdfast.errors import RemoteProtocolError
from holdfast.wire.rpc import JsonValue

T = TypeVar("T")


def convert(value: JsonValue, kind: type[T]) -> T:
    """The value as `kind`.

    Raises:
        RemoteProtocolError: it is something else; the text says which member and why.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise RemoteProtocolError(f"the server's answer does not fit the protocol: {exc}") from None
