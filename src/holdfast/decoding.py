"""Convert data to typed values, from any thread.

msgspec inspects a type on its first use, and runs Python code during that. If a second thread uses the type
before the first is done, it finds it incomplete, and the process ends with SIGSEGV (0.22.0: one dispatch in a
few hundred on a busy machine). So the first use of every type happens here, by one thread at a time.
Pure module but for the lock.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec

T = TypeVar("T")
Hook: TypeAlias = Callable[[type, Any], Any]  # creates what msgspec cannot create itself
Data: TypeAlias = bytes | bytearray | memoryview | str

_one_at_a_time: Final = threading.Lock()
_decoders: Final[dict[tuple[object, Hook | None], msgspec.json.Decoder[Any]]] = {}


@overload
def decoder(kind: type[T], hook: Hook | None = None) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: Any, hook: Hook | None = None) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any, hook: Hook | None = None) -> msgspec.json.Decoder[Any]:
    """Return the JSON decoder of this type."""
    found = _decoders.get((kind, hook))
    if found is None:
        with _one_at_a_time:
            found = _decoders[kind, hook] = msgspec.json.Decoder(kind, dec_hook=hook)
    return found


@overload
def decode(data: Data, kind: type[T]) -> T: ...
@overload
def decode(data: Data, kind: Any) -> Any: ...
def decode(data: Data, kind: Any) -> Any:
    """Decode JSON to this type. Raises msgspec.MsgspecError, UnicodeError, RecursionError."""
    return decoder(kind).decode(data)


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    """Decode MessagePack to this type. Raises msgspec.MsgspecError, UnicodeError."""
    decoder(kind)
    return msgspec.msgpack.decode(data, type=kind)


@overload
def convert(value: object, kind: type[T], *, strict: bool = ..., from_attributes: bool = ...) -> T: ...
@overload
def convert(
    value: object, kind: Any, *, strict: bool = ..., from_attributes: bool = ..., hook: Hook | None = ...
) -> Any: ...
def convert(
    value: object,
    kind: Any,
    *,
    strict: bool = True,
    from_attributes: bool = False,
    hook: Hook | None = None,
) -> Any:
    """Convert decoded data to this type. Raises msgspec.ValidationError."""
    decoder(kind, hook)
    return msgspec.convert(value, kind, strict=strict, from_attributes=from_attributes, dec_hook=hook)
