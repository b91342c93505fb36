"""Any text in, causes out, deepest first; unknown text says so; nothing grows with the text."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from holdfast.doctor.explain.explanation import (
    MAX_EVIDENCE,
    MAX_EVIDENCE_CHARS,
    NEXT,
    PROBES,
    WINDOW_LINES,
    Reading,
    explain,
    lines,
    report,
)
from holdfast.sandbox.reasons.fingerprint_table import Layer

LOOPBACK = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
LOG = f"""starting
curl: (6) Could not resolve host: example.com
{LOOPBACK}
retry
{LOOPBACK}
bwrap: Unknown option --argv0
ERROR: Reconnecting... 1/5
"""


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
