"""What a server says about processes: bytes to events, answers and pages. Pure module.

Servers differ: unknown members are ignored and the younger ones may be absent. Output is the bulk of
all traffic, so the spelling that every known server uses is cut out of the bytes directly; the
base64 decoder refuses whatever is not base64, and then the ordinary parser has its say.
"""

import re
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
import pybase64

from holdfast.client.answer import convert
from holdfast.client.events.ordering import Closed, Event, Exited, Output, ReadPage, Stream
from holdfast.errors import InvalidRequest, RemoteProtocolError
from holdfast.wire.processes import (
    DenialReport,
    EnforcementReport,
    LimitReport,
    NetworkReport,
    ProcessUsage,
    WatchReport,
)
from holdfast.wire.rpc import JsonValue

_SHORTCUT: Final = re.compile(
    rb'\{"method":"process/output","params":'
    rb'\{"processId":"([A-Za-z0-9_.-]{1,256})","seq":([0-9]{1,18}),"stream":"(stdout|stderr|pty)","chunk":"'
)
_TAIL: Final = b'"}}'
_KNOWN: Final = re.compile(rb'\{"method":"process/(?:output|exited|closed)"')


class Pushed(NamedTuple):
    """One event and whose it is."""

    process_id: str
    event: Event


class StartAnswer(msgspec.Struct, rename="camel"):
    """The answer to process/start."""

    process_id: str
    sandbox_type: str | None = None
    enforcement: EnforcementReport | None = None
    pid: int | None = None
    watch: WatchReport | None = None


class _Written(msgspec.Struct):
    status: str


class _Output(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int
    stream: Stream
    chunk: bytes


class _Exited(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int
    exit_code: int
    sandbox_denied: bool | None = None
    usage: ProcessUsage | None = None
    denial: DenialReport | None = None
    limit: LimitReport | None = None
    network: NetworkReport | None = None


class _Closed(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int


class _OutputNote(msgspec.Struct, tag_field="method", tag="process/output"):
    params: _Output


class _ExitedNote(msgspec.Struct, tag_field="method", tag="process/exited"):
    params: _Exited


class _ClosedNote(msgspec.Struct, tag_field="method", tag="process/closed"):
    params: _Closed


_Note: TypeAlias = _OutputNote | _ExitedNote | _ClosedNote
_NAMES: Final = ("process/output", "process/exited", "process/closed")

_notes = msgspec.json.Decoder(_Note)


def decode_pushed(message: bytes | memoryview) -> Pushed | None:
    """The event in a whole message; None if it is another message, or is spelled unusually.

    Raises:
        RemoteProtocolError: it is an event, and a broken one.
    """
    found = _SHORTCUT.match(message)
    if found is not None and message[-3:] == _TAIL:
        try:
            data = pybase64.b64decode(memoryview(message)[found.end() : -3], validate=True)
        except ValueError:
            pass  # an escape within the string, or not base64: the parser below tells
        else:
            process_id, seq, stream = found.groups()
            return Pushed(
                bytes(process_id).decode(), Output(int(seq), cast(Stream, bytes(stream).decode()), data)
            )
    if _KNOWN.match(message) is None:
        return None
    try:
        note = _notes.decode(message)
    except msgspec.DecodeError as exc:
        raise RemoteProtocolError(f"a process notification is broken: {exc}") from None
    return _to_pushed(note)


def convert_pushed(method: str, params: JsonValue) -> Pushed | None:
    """The same from a parsed message; None if the method is no process event.

    Raises:
        RemoteProtocolError: it is, and a broken one.
    """
    if method not in _NAMES:
        return None
    try:
        return _to_pushed(msgspec.convert({"method": method, "params": params}, _Note))
    except msgspec.ValidationError as exc:
        raise RemoteProtocolError(f"a process notification is broken: {exc}") from None


def _to_pushed(note: _Note) -> Pushed:
    match note:
        case _OutputNote(_Output(process_id, seq, stream, chunk)):
            return Pushed(process_id, Output(seq, stream, chunk))
        case _ExitedNote(_Exited(process_id, seq, code, denied, usage, denial, limit, network)):
            return Pushed(process_id, Exited(seq, code, denied, usage, denial, limit, network))
        case _ClosedNote(_Closed(process_id, seq)):
            return Pushed(process_id, Closed(seq))


def decode_page(result: JsonValue) -> ReadPage:
    """A `process/read` answer.

    Raises:
        RemoteProtocolError: it is none.
    """
    return convert(result, ReadPage)


def check_written(answer: JsonValue) -> None:
    """The answer to what feeds or closes standard input.

    Raises:
        InvalidRequest: it was not taken.
    """
    status = convert(answer, _Written).status
    if status == "stdinClosed":
        raise InvalidRequest(
            "the process has no standard input, or not any more", remedy="start it with stdin=True"
        )
    if status != "accepted":
        raise InvalidRequest(f"the server does not take input for this process: {status}")
