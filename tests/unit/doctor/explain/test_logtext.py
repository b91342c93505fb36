"""Bytes in, lines out: whatever the encoding, the pieces, the terminal or the JSON around them."""

import json

import pytest

from holdfast.doctor.explain.logtext import MAX_LINE_CHARS, MAX_OPEN_CHARS, LogText
from tests.support.rows import every_row

TEXT = "one\nzwei Größen\nthree\n"


def lines(data: bytes, size: int = 1 << 30) -> list[str]:
    text = LogText()
    out = [line for at in range(0, len(data), size) for line in text.feed(data[at : at + size])]
    return out + text.feed(b"", final=True)


@every_row("size", [1, 2, 3, 7, 1000])
@every_row("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le with a mark"])
def test_every_encoding_gives_the_same_lines(encoding: str, size: int) -> None:
    data = b"\xff\xfe" + TEXT.encode("utf-16-le") if "mark" in encoding else TEXT.encode(encoding)
    assert lines(data, size) == ["one", "zwei Größen", "three", ""]


def test_utf_16_without_a_mark_is_read_as_far_as_it_is_plain() -> None:
    assert lines("plain\ntext".encode("utf-16-le")) == ["plain", "text"]


def test_other_encodings_lose_only_their_own_letters() -> None:
    assert lines("Größe: nichts".encode("latin-1")) == ["Gr\ufffd\ufffde: nichts"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_end_of_line_ends_a_line(end: str) -> None:
    assert [line for line in lines(f"a{end}b{end}c".encode(), 1) if line] == ["a", "b", "c"]


def test_escapes_of_a_terminal_are_taken_out() -> None:
    assert lines(b"\x1b[31mred\x1b[0m \x1b]0;title\x07and \x1b]8;;http://x\x1b\\link") == ["red and link"]


def test_a_json_message_becomes_the_text_it_carries() -> None:
    message = {"type": "error", "text": 'first\n\tsecond "quoted" \u00e9\u001b[0m', "code": 1}
    assert lines(json.dumps(message, separators=(",", ":")).encode()) == [
        '{"type":"error",',
        '"text":"first',
        '\tsecond "quoted" é",',
        '"code":1}',
    ]


def test_json_within_json_is_opened_too() -> None:
    inner = json.dumps({"output": "bwrap: no\nend", "x": 1})
    assert "bwrap: no" in "\n".join(lines(json.dumps({"item": inner}).encode())).replace(
        '{"output": "', "\n"
    ).split("\n")


def test_a_long_line_comes_in_pieces() -> None:
    assert [len(line) for line in lines(b"x" * (MAX_LINE_CHARS * 2 + 1))] == [
        MAX_LINE_CHARS,
        MAX_LINE_CHARS,
        1,
    ]


def test_a_line_without_end_is_handed_out_when_it_is_too_long_to_keep() -> None:
    text = LogText()
    assert text.feed(b"x" * MAX_OPEN_CHARS) == []
    assert sum(map(len, text.feed(b"xx"))) == MAX_OPEN_CHARS + 2
    assert text.feed(b"", final=True) == [""]


def test_nothing_in_gives_an_empty_line() -> None:
    assert lines(b"") == [""]
