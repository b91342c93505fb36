"""What servers say about processes, in every spelling."""

import base64
import json

import pytest

from holdfast.client.events.ordering import (
    Closed,
    Exited,
    Output,
    Pushed,
    ReadPage,
    convert_pushed,
    decode_page,
    decode_pushed,
)
from holdfast.errors import RemoteProtocolError
from holdfast.wire.processes import DenialReport, ProcessUsage
from tests.support.rows import every_row

DATA = bytes(range(256))
USAGE = {"userMs": 1, "systemMs": 2, "peakRssBytes": 3}
DENIAL = {
    "kind": "filesystem",
    "path": "/x",
    "host": None,
    "access": "write",
    "rule": None,
    "grant": None,
    "confidence": 0.5,
    "evidence": "EROFS",
}


def note(kind: str, **params: object) -> dict[str, object]:
    return {"method": f"process/{kind}", "params": {"processId": "p1", "seq": 7, **params}}


def output(**more: object) -> dict[str, object]:
    return note("output", stream="stdout", chunk=base64.b64encode(DATA).decode(), **more)


CASES = [
    (output(), Output(7, "stdout", DATA)),
    (note("output", stream="pty", chunk=""), Output(7, "pty", b"")),
    (output(extra={"a": [1]}), Output(7, "stdout", DATA)),
    (note("exited", exitCode=3, sandboxDenied=True), Exited(7, 3, True)),
    (note("exited", exitCode=3), Exited(7, 3, None)),
    (note("exited", exitCode=3, sandboxDenied=None, denial=None), Exited(7, 3, None)),
    (
        note("exited", exitCode=0, sandboxDenied=False, usage=USAGE, denial=DENIAL),
        Exited(
            7,
            0,
            False,
            ProcessUsage(1, 2, 3),
            DenialReport("filesystem", "/x", None, "write", None, None, 0.5, "EROFS"),
        ),
    ),
    (note("closed"), Closed(7)),
]


@every_row(("message", "event"), CASES)
def test_an_event_is_read_from_the_usual_spelling(message: dict[str, object], event: object) -> None:
    data = json.dumps(message, separators=(",", ":")).encode()
    assert decode_pushed(data) == Pushed("p1", event)  # type: ignore[arg-type]  # the table mixes events
    assert decode_pushed(memoryview(data)) == decode_pushed(data)


@every_row(("message", "event"), CASES)
def test_an_unusual_spelling_is_left_to_the_parser_and_means_the_same(
    message: dict[str, object], event: object
) -> None:
    assert decode_pushed(json.dumps(message).encode()) is None
    assert convert_pushed(str(message["method"]), message["params"]) == Pushed("p1", event)  # type: ignore[arg-type]


def test_escapes_within_the_data_mean_the_same() -> None:
    data = json.dumps(output(), separators=(",", ":")).replace("/", "\\/").replace("process\\/", "process/")
    assert "\\/" in data
    assert decode_pushed(data.encode()) == Pushed("p1", Output(7, "stdout", DATA))


def test_a_process_id_may_be_any_text() -> None:
    message = {
        "method": "process/output",
        "params": {"processId": 'ä"\\', "seq": 1, "stream": "pty", "chunk": "YQ=="},
    }
    data = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
    assert decode_pushed(data) == Pushed('ä"\\', Output(1, "pty", b"a"))


@every_row(
    "data",
    [
        b'{"method":"process/output","params":{"processId":"p1","seq":1,"stream":"stdout","chunk":"*"}}',
        b'{"method":"process/output","params":{"processId":"p1","seq":1,"stream":"other","chunk":"YQ=="}}',
        b'{"method":"process/output","params":{"processId":"p1","seq":1,"stream":"stdout","chunk":"YQ=="}',
        b'{"method":"process/output","params":{"processId":"p1","stream":"stdout","chunk":"YQ=="}}',
        b'{"method":"process/exited","params":{"processId":"p1","seq":1}}',
        b'{"method":"process/closed","params":{}}',
        b'{"method":"process/closed"',
    ],
)
def test_a_broken_event_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_pushed(data)


def test_a_broken_event_is_refused_after_parsing_too() -> None:
    with pytest.raises(RemoteProtocolError):
        convert_pushed("process/closed", {"processId": "p1"})


@pytest.mark.parametrize("data", [b'{"id":1,"result":{}}', b'{"method":"fs/missingChanged"}', b"", b"{"])
def test_other_messages_are_none_of_its_business(data: bytes) -> None:
    assert decode_pushed(data) is None


def test_other_methods_are_none_of_its_business() -> None:
    assert convert_pushed("fs/missingChanged", {}) is None


def test_a_page_is_read_with_what_an_old_server_leaves_out() -> None:
    assert decode_page({"chunks": [], "nextSeq": 1}) == ReadPage((), 1, False, None, False, None, False, None)


def test_a_whole_page_is_read() -> None:
    page = decode_page(
        {
            "chunks": [{"seq": 2, "stream": "stderr", "chunk": "YQ=="}],
            "nextSeq": 5,
            "exited": True,
            "exitCode": 7,
            "closed": True,
            "failure": None,
            "sandboxDenied": True,
            "usage": USAGE,
        }
    )
    assert page == ReadPage((Output(2, "stderr", b"a"),), 5, True, 7, True, None, True, ProcessUsage(1, 2, 3))


@pytest.mark.parametrize("answer", [None, [], {}, {"chunks": [{}], "nextSeq": 1}])
def test_what_is_no_page_is_refused(answer: object) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_page(answer)
