"""What every message struct is made of. Pure module.

A field that may be omitted or null is `X | None = None`; one that may be omitted but not null
has a plain default; one without a default must be present. Base64 text becomes `bytes` while
decoding.
"""

from typing import Annotated, TypeAlias

import msgspec

U16: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**16 - 1)]
U64: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]  # msgspec cannot state 2**64; rpc gives no larger int


class Params(msgspec.Struct, frozen=True, rename="camel"):
    """What the client sends. Unknown members are ignored."""


class MethodResult(msgspec.Struct, frozen=True, rename="camel"):
    """What the server sends."""


class NoParams(Params, frozen=True):
    """The method takes none: omitted, null and {} are the same."""


class Empty(MethodResult, frozen=True):
    """A result that says only: done."""
