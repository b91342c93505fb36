"""Tools as MCP presents them, made from structs of their parameters. Pure module.

Arguments from a model are read leniently: null means absent, one text is a list of it, a number may be a
text, and an object may be JSON text. Unknown arguments are not refused but listed in the answer. So a prompt
written for another board still works, and the model learns what was ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast import decoding
from holdfast.errors import HoldfastError, OperationFailed, UsageError

MAX_ANSWER: Final = 128 * 1024  # bytes of one answer: more than a model reads of it
_CUTS: Final = (8192, 2048, 512, 128)  # characters of each text: the first that makes an answer fit


class Parameters(msgspec.Struct, kw_only=True):
    """Base of the parameters of all tools."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its name, its description, and its parameters."""

    name: str
    about: str
    takes: type[Parameters]
    looks: bool = False  # it changes nothing
    once: bool = False  # repeating the same call changes nothing more


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A tool's answer in words, and as JSON for clients that use its members."""

    text: str
    structured: bytes | None = None
    failed: bool = False


def as_json(value: Mapping[str, Any], *, failed: bool = False) -> ToolAnswer:
    """An answer with JSON as its text, for a tool with members that are read as they are.

    Raises:
        OperationFailed: as `encode` does.
    """
    return ToolAnswer(encode(value).decode(), failed=failed)


def in_words(words: str, value: Mapping[str, Any], *, failed: bool = False) -> ToolAnswer:
    """An answer in words, with its members beside them: some CLIs show their model only one of the two.

    Raises:
        OperationFailed: as `encode` does.
    """
    return ToolAnswer(_cut(words, MAX_ANSWER // 4), encode({**value, "says": words}), failed)


def schema(takes: type[Parameters]) -> dict[str, Any]:
    """The JSON schema of the parameters, one plain object without references."""
    _, components = msgspec.json.schema_components([takes])
    found = components[takes.__name__]
    return {key: value for key, value in found.items() if key not in ("title", "description")}


def read(tool: Tool, given: Mapping[str, Any]) -> tuple[Parameters, list[str]]:
    """Decode the parameters; return them with the names of unknown arguments.

    Raises:
        UsageError: one is missing, too long, or of another kind.
    """
    known: dict[str, Any] = schema(tool.takes)["properties"]
    plain = {name: _plain(known[name], value) for name, value in given.items() if name in known}
    said = {name: value for name, value in plain.items() if value is not None}
    try:
        taken = decoding.convert(said, tool.takes, strict=False)
    except msgspec.ValidationError as exc:
        takes = ", ".join(known)
        raise UsageError(f"{tool.name}: {exc}", remedy=f"its parameters are: {takes}") from None
    return taken, sorted(name for name, value in given.items() if name not in known and value is not None)


def _plain(wanted: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, str) and wanted.get("type") == "array":
        return [value]
    if isinstance(value, str) and wanted.get("type") == "object":
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return value
    return value


def answer(result: Mapping[str, Any], ignored: list[str]) -> dict[str, Any]:
    """The answer of a successful tool."""
    return {"ok": True, **result} | ({"ignored": ignored} if ignored else {})


def problem(exc: HoldfastError) -> dict[str, Any]:
    """The answer of a failed tool. The notes of an error are information that came with it for the caller."""
    notes: list[str] = getattr(exc, "__notes__", [])
    more = {"remedy": exc.remedy, "messages": notes}
    return {"error": str(exc)} | {name: value for name, value in more.items() if value}


def encode(value: Mapping[str, Any]) -> bytes:
    """Encode as JSON of at most MAX_ANSWER bytes; long texts are cut until it fits, and marked as cut.

    Raises:
        OperationFailed: it has too many parts for that.
    """
    data = msgspec.json.encode(value)
    plain = msgspec.json.decode(data) if len(data) > MAX_ANSWER else None
    for most in _CUTS:
        if len(data) <= MAX_ANSWER:
            return data
        data = msgspec.json.encode(_cut(plain, most))
    if len(data) <= MAX_ANSWER:
        return data
    raise OperationFailed(f"the answer has more than {MAX_ANSWER} bytes", remedy="holdfast task show ID")


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}… ({len(value) - most} more characters)"
    if isinstance(value, list):
        return [_cut(item, most) for item in value]
    if isinstance(value, dict):
        return {name: _cut(item, most) for name, item in value.items()}
    return value
