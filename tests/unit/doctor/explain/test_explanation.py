"""Any text in, causes out, deepest first; unknown text says so; nothing grows with the text."""

import errno
import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.doctor.explain.explanation import (
    MAX_EVIDENCE,
    MAX_EVIDENCE_CHARS,
    MAX_LINE_CHARS,
    MAX_OPEN_CHARS,
    NEXT,
    PROBES,
    TABLE,
    TRIED,
    WINDOW_LINES,
    LogText,
    Reading,
    compare_with_host,
    explain,
    lines,
    report,
)
from holdfast.sandbox.host.hostfacts import Fact
from holdfast.sandbox.host.stages import probes
from holdfast.sandbox.reasons.fingerprint_table import Layer
from tests.support.rows import every_row
from tests.unit.doctor.facts.test_rules import HOST

LOOPBACK = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
TEXT = "one\nzwei Größen\nthree\n"
LOG = f"""starting
curl: (6) Could not resolve host: example.com
{LOOPBACK}
retry
{LOOPBACK}
bwrap: Unknown option --argv0
ERROR: Reconnecting... 1/5
"""


def read_lines(data: bytes, size: int = 1 << 30) -> list[str]:
    text = LogText()
    out = [line for at in range(0, len(data), size) for line in text.feed(data[at : at + size])]
    return out + text.feed(b"", final=True)


@every_row("size", [1, 2, 3, 7, 1000])
@every_row("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le with a mark"])
def test_every_encoding_gives_the_same_lines(encoding: str, size: int) -> None:
    data = b"\xff\xfe" + TEXT.encode("utf-16-le") if "mark" in encoding else TEXT.encode(encoding)
    assert read_lines(data, size) == ["one", "zwei Größen", "three", ""]


def test_utf_16_without_a_mark_is_read_as_far_as_it_is_plain() -> None:
    assert read_lines("plain\ntext".encode("utf-16-le")) == ["plain", "text"]


def test_other_encodings_lose_only_their_own_letters() -> None:
    assert read_lines("Größe: nichts".encode("latin-1")) == ["Gr\ufffd\ufffde: nichts"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_end_of_line_ends_a_line(end: str) -> None:
    assert [line for line in read_lines(f"a{end}b{end}c".encode(), 1) if line] == ["a", "b", "c"]


def test_escapes_of_a_terminal_are_taken_out() -> None:
    assert read_lines(b"\x1b[31mred\x1b[0m \x1b]0;title\x07and \x1b]8;;http://x\x1b\\link") == [
        "red and link"
    ]


def test_a_json_message_becomes_the_text_it_carries() -> None:
    message = {"type": "error", "text": 'first\n\tsecond "quoted" \u00e9\u001b[0m', "code": 1}
    assert read_lines(json.dumps(message, separators=(",", ":")).encode()) == [
        '{"type":"error",',
        '"text":"first',
        '\tsecond "quoted" é",',
        '"code":1}',
    ]


def test_json_within_json_is_opened_too() -> None:
    inner = json.dumps({"output": "bwrap: no\nend", "x": 1})
    assert "bwrap: no" in "\n".join(read_lines(json.dumps({"item": inner}).encode())).replace(
        '{"output": "', "\n"
    ).split("\n")


def test_a_long_line_comes_in_pieces() -> None:
    assert [len(line) for line in read_lines(b"x" * (MAX_LINE_CHARS * 2 + 1))] == [
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
    assert read_lines(b"") == [""]


def test_each_cause_is_named_once_with_its_lines_deepest_first() -> None:
    found = explain(LOG)
    assert [one.id for one in found] == ["lo.newaddr", "bwrap.option", "net.dns", "provider.retry"]
    assert (found[0].count, found[0].evidence) == (2, (LOOPBACK, LOOPBACK))


def test_what_is_hardly_a_cause_is_told_last() -> None:
    found = explain(
        "Codex could not find bubblewrap on PATH.\ncurl: (6) Could not resolve host: example.com\n"
    )
    assert [one.id for one in found] == ["net.dns", "codex.bundled"]


def test_people_read_cause_evidence_remedy_and_what_would_confirm_it() -> None:
    told = "\n".join(lines(explain(LOG)))
    assert "RTM_NEWADDR" in told
    assert "(and 1 more)" in told
    assert told.count("  try: ") == told.count("  check: ") == 4


def test_unknown_text_says_so_and_what_to_type_next() -> None:
    assert explain("all is well") == []
    told = lines([])
    assert [line.split("  (")[0] for line in told[1:]] == [f"  try: {command}" for command, _ in NEXT]
    assert report([])["next"] == [command for command, _ in NEXT]


def test_every_layer_has_something_to_type() -> None:
    assert set(PROBES) == set(Layer)


def test_machines_get_the_same_as_a_tree() -> None:
    [one] = explain("bwrap: Unknown option --argv0")
    assert report([one]) == {
        "schemaVersion": 1,
        "explanations": [
            {
                "fingerprint": "bwrap.option",
                "layer": "tool",
                "cause": one.cause,
                "remedy": one.remedy,
                "confidence": 0.95,
                "evidence": ["bwrap: Unknown option --argv0"],
                "count": 1,
                "probe": "holdfast doctor",
                "here": None,
            }
        ],
        "next": [],
    }


def test_a_flood_is_counted_and_not_kept() -> None:
    reading = Reading()
    for number in range(WINDOW_LINES * 3):
        reading.feed(f"rm: cannot remove '/ro/{number}': Read-only file system\n".encode())
    [one] = reading.causes()
    assert (one.count, len(one.evidence)) == (WINDOW_LINES * 3, MAX_EVIDENCE)
    assert one.evidence[0] == "rm: cannot remove '/ro/0': Read-only file system"


def test_a_long_line_is_shown_short_and_without_secrets() -> None:
    [one] = explain(
        "curl -H 'Authorization: Bearer abcdefghijklmnop': Could not resolve host: a.example " + "x" * 999
    )
    assert "abcdefghijklmnop" not in one.evidence[0]
    assert len(one.evidence[0]) == MAX_EVIDENCE_CHARS


def test_a_secret_is_taken_out_before_the_line_is_cut() -> None:
    key = "sk-" + "k" * 400
    [one] = explain("x" * (MAX_EVIDENCE_CHARS - 100) + f" Could not resolve host: a.example {key}")
    assert "kkkkkkk" not in one.evidence[0]


def test_a_message_of_several_lines_is_found_across_the_border_of_two_windows() -> None:
    trace = (
        '  File "/usr/lib/python3.11/socket.py", line 232, in __init__\n'
        "    _socket.socket.__init__(self, family, type, proto, fileno)\n"
        "PermissionError: [Errno 1] Operation not permitted\n"
    )
    for before in range(WINDOW_LINES - 3, WINDOW_LINES + 1):
        [one] = explain("x\n" * before + trace)
        assert (one.id, one.count) == ("net.socket", 1)


def test_memory_does_not_grow_with_the_text() -> None:
    chunk = (
        b"2026-01-01 INFO nothing of interest happened in this long line of an ordinary log, not at all\n"
        * 600
    )

    def peak(times: int) -> int:
        reading = Reading()
        tracemalloc.reset_peak()
        for _ in range(times):
            reading.feed(chunk)
        assert reading.causes() == []
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        peak(2)  # compiles and caches what it needs
        # Other threads of this process allocate too, which only ever adds.
        assert min(peak(60) for _ in range(3)) < min(peak(4) for _ in range(3)) * 1.5
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_are_too_odd(pieces: list[bytes]) -> None:
    reading = Reading()
    for piece in pieces:
        reading.feed(piece)
    assert len(lines(reading.causes())) >= 1


@given(st.binary(max_size=100), st.binary(max_size=100), st.integers(1, 50))
def test_a_cause_is_found_within_junk_however_it_is_cut(before: bytes, after: bytes, size: int) -> None:
    text = before.replace(b"\xff", b"").replace(b"\xfe", b"") + b"\n" + LOOPBACK.encode() + b"\n" + after
    reading = Reading()
    for at in range(0, len(text), size):
        reading.feed(text[at : at + size])
    assert "lo.newaddr" in {one.id for one in reading.causes()}


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (Fact("loopback", works=True), "but loopback worked here"),
        (
            Fact("loopback", False, "loopback", errno.EPERM),
            "confirmed, loopback is refused here (loopback: EPERM)",
        ),
        (Fact("loopback", None, "netns", errno.ENOSPC), "loopback could not be tried here (netns: ENOSPC)"),
    ],
)
def test_what_was_tried_here_is_told(fact: Fact, said: str) -> None:
    [one] = compare_with_host(explain(LOOPBACK), replace(HOST, facts=(fact,)))
    assert one.here is not None
    assert said in one.here
    assert f"  here: {one.here}" in lines([one])


def test_one_refusal_among_several_confirms() -> None:
    facts = (Fact("mount propagation", works=True), Fact("mount calls", False, "mount", errno.EPERM))
    [one] = compare_with_host(
        explain("bwrap: pivot_root: Operation not permitted"), replace(HOST, facts=facts)
    )
    assert one.here is not None
    assert one.here.startswith("confirmed, mount calls")


@pytest.mark.parametrize("text", [LOOPBACK, "Not logged in"])
def test_where_nothing_was_tried_nothing_is_told(text: str) -> None:
    [one] = compare_with_host(explain(text), replace(HOST, facts=()))
    assert one.here is None


def test_every_name_is_known() -> None:
    tried = set(probes("", root=False))
    assert {name for names in TRIED.values() for name in names} <= tried
    ids = {row.id for row in TABLE}
    assert set(TRIED) <= ids | {id_.partition(".")[0] for id_ in ids}
