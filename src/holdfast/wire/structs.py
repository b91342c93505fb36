"""The base classes of all message structs. Pure module.

A field that may be omitted or null is `X | None = None`; one that may be omitted but not null
has a plain default; one without a default must be present. Base64 text becomes `bytes` while
decoding.
"""

from typing import Annotated, TypeAlias

import msgspec

U16: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
U64: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]  # msgspec cannot state 2**64; rpc returns no larger int


class Params(msgspec.Struct, frozen=True, rename="camel"):
    """Parameters from the client. Unknown members are ignored."""


class MethodResult(msgspec.Struct, frozen=True, rename="camel"):
    """A result or notification from the server."""


class NoParams(Params, frozen=True):
    """Parameters of a method without any: omitted, null and {} are equal."""


class Empty(MethodResult, frozen=True):
    """A result without content."""
