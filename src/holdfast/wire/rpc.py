"""The JSON-RPC envelope: bytes to messages and back. Pure module.

A message is one JSON object without a `jsonrpc` member. Its kind follows from its members,
first match wins: `method` and `id` is a request, `method` alone a notification, `result` a
response, everything else must be an error. Two rules go beyond JSON itself and are checked
here, because every later layer relies on them: no object repeats a key, and no message holds
more than MAX_VALUES values (a compact array of a few megabytes would otherwise become
gigabytes of objects).
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard

import msgspec

from holdfast.errors import RemoteProtocolError
from holdfast.wire.paths import PathUri
from holdfast.wire.sizes import MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES

MAX_VALUES: Final = 256 * 1024  # bounds memory and time of one parse
MAX_DEPTH: Final = 127  # the bound of the reference's parser
_MAX_INT_DIGITS: Final = 20  # of the longest 64-bit number, sign included
MAX_ECHO: Final = 200  # characters of the peer's own text in an error: enough to recognise, not to amplify
UNATTRIBUTED: Final = -1  # the id of an error that answers no particular request

RequestId: TypeAlias = int | str
JsonValue: TypeAlias = Any  # the only type of untyped values: between the parser and a struct


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    params: JsonValue = None
    traceparent: str | None = None
    tracestate: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: JsonValue = None


@dataclass(frozen=True, slots=True)
class Response:
    id: RequestId
    result: JsonValue


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    id: RequestId
    code: int
    message: str
    data: JsonValue = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class _ParseError(ValueError):
    """Raised by the parser hooks; its text is ours and may be sent to the peer."""


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        keys = (key for key, _ in pairs)
        while (key := next(keys)) not in seen:
            seen.add(key)
        raise _ParseError(f"duplicate JSON object key `{key[:MAX_ECHO]}`")
    return made


def _constant(name: str) -> NoReturn:
    raise _ParseError(f"{name} is not JSON")


def _integer(digits: str) -> int | Decimal:
    """An int if 64 bits hold it, so that no typed field gets a larger one; otherwise the digits are kept."""
    if len(digits) <= _MAX_INT_DIGITS:
        value = int(digits)
        if -(2**63) <= value < 2**64:
            return value
    return Decimal(digits)


def _fraction(digits: str) -> Decimal | msgspec.Raw:
    """The number as written, even with an exponent beyond Decimal's range."""
    try:
        return Decimal(digits)
    except ArithmeticError:
        return msgspec.Raw(digits.encode())


_parser = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_fraction, parse_int=_integer
)


def _to_wire(value: object) -> str:
    if isinstance(value, PathUri):
        return value.uri
    raise TypeError(f"no message has a member of type {type(value)}")


_encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_to_wire)

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_EMPTY = re.compile(rb"\[\s*\]|\{\s*\}")


def _check_size(data: bytes) -> None:
    """Refuse too many values or too much depth, before anything is built."""
    opened = data.count(b"[") + data.count(b"{")
    if opened <= MAX_DEPTH and (len(data) < MAX_VALUES or opened + data.count(b",") < MAX_VALUES):
        return  # an upper bound that also counts characters inside strings: nearly every message ends here
    bare = _STRING.sub(b'""', data)
    # A non-empty container has one value more than commas; the root is one more.
    values = 1 + bare.count(b",") + bare.count(b"[") + bare.count(b"{") - len(_EMPTY.findall(bare))
    if values > MAX_VALUES:
        raise _ParseError(f"JSON-RPC message exceeds the limit of {MAX_VALUES} JSON values")
    depth = 0
    for bracket in _BRACKETS.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _ParseError("recursion limit exceeded")


def parse(data: bytes) -> JsonValue:
    """Parse one JSON text to Python values, with the two extra rules.

    Raises:
        RemoteProtocolError: it is not JSON, repeats a key, has too many values, or is too deep.
    """
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise _ParseError(f"message exceeds {MAX_MESSAGE_BYTES} bytes")
        _check_size(data)
        text = data.decode("utf-8")
        value = _parser.decode(text)
        if b"\\" in data and b"\\u" in data:  # searching for one byte is much faster than for two
            _encoder.encode(value)  # fails on a lone surrogate, which is not text; the parser accepts it
        return value
    except _ParseError as exc:
        raise RemoteProtocolError(str(exc)) from None
    except json.JSONDecodeError as exc:
        raise RemoteProtocolError(f"{exc.msg} at line {exc.lineno} column {exc.colno}") from None
    except UnicodeDecodeError:
        raise RemoteProtocolError("invalid UTF-8") from None
    except (ValueError, RecursionError):
        raise RemoteProtocolError("invalid JSON") from None


def decode(data: bytes) -> Message:
    """Parse one message; `params` and `result` stay untyped until their method is known.

    Raises:
        RemoteProtocolError: the bytes are not a message.
    """
    obj = parse(data)
    if not isinstance(obj, dict):
        raise RemoteProtocolError("expected a JSON object")
    if "method" in obj:
        method = obj["method"]
        if not isinstance(method, str):
            raise RemoteProtocolError("method must be a string")
        if "id" not in obj:
            return Notification(method, obj.get("params"))
        return Request(_id(obj), method, obj.get("params"), *_trace(obj.get("trace")))
    if "result" in obj:
        return Response(_id(obj), obj["result"])
    error = obj.get("error")
    if isinstance(error, dict):
        code, message = error.get("code"), error.get("message")
        if _is_i64(code) and isinstance(message, str):
            return ErrorResponse(_id(obj), code, message, error.get("data"))
    raise RemoteProtocolError("missing or malformed field `error`")


def _id(obj: dict[str, JsonValue]) -> RequestId:
    value = obj.get("id")
    if isinstance(value, str):
        return value
    if _is_i64(value):
        return value
    raise RemoteProtocolError("id must be a string or a signed 64-bit integer")


def _is_i64(value: JsonValue) -> TypeGuard[int]:
    return type(value) is int and -(2**63) <= value < 2**63


def _trace(value: JsonValue) -> tuple[str | None, str | None]:
    """Parse the trace context; the tracer validates its text, only the form is checked here."""
    if value is None:
        return None, None
    if not isinstance(value, dict):
        raise RemoteProtocolError("trace must be an object")
    parent, state = value.get("traceparent"), value.get("tracestate")
    if not isinstance(parent, str | None) or not isinstance(state, str | None):
        raise RemoteProtocolError("trace members must be strings")
    return parent, state


def request(
    id_: RequestId,
    method: str,
    params: object = None,
    *,
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> bytes:
    message: dict[str, object] = {"id": id_, "method": method}
    if params is not None:
        message["params"] = params
    if traceparent is not None:
        message["trace"] = {"traceparent": traceparent}
        if tracestate is not None:
            message["trace"] = {"traceparent": traceparent, "tracestate": tracestate}
    return _encoder.encode(message)


def notification(method: str, params: object = None) -> bytes:
    if params is None:
        return _encoder.encode({"method": method})
    return _encoder.encode({"method": method, "params": params})


def response(id_: RequestId, result: object) -> bytes:
    return _encoder.encode({"id": id_, "result": result})


def error(id_: RequestId, code: int, message: str, data: object = None) -> bytes:
    text = message.encode(errors="replace").decode()  # the message may contain a file name that is not text
    told: dict[str, object] = {"code": code, "message": text}
    if data is not None:
        told["data"] = data
    return _encoder.encode({"error": told, "id": id_})
