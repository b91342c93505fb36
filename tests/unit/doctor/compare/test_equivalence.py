"""Two observations compared: verdicts, answers, and what is never shown."""

import hashlib
from dataclasses import replace

import pytest

from holdfast.doctor.compare.equivalence import (
    CONSEQUENCES,
    GROUPS,
    MAX_LINE,
    OUTCOME,
    UNLIMITED,
    CapturedStream,
    ComparedRow,
    Comparison,
    EquivalenceVerdict,
    Observation,
    Ran,
    ReachAnswer,
    Value,
    compare,
    is_harmless,
    lines,
    of_status,
)
from tests.support.rows import every_row

SURROUNDINGS: dict[str, dict[str, Value]] = {
    "files": {"/home": ("read", "create")},
    "network": {"own loopback": True},
    "environment": {"PATH": "/bin", "API_KEY": "#1234"},
    "identity": {"user": "0 root"},
    "terminal": {"new terminals": True},
    "process": {"limit on open files": UNLIMITED},
    "confinement": {"pid namespace": "pid:[1]"},
}


def stream(text: bytes, kept: int = 1000) -> CapturedStream:
    return CapturedStream(
        text[:kept], len(text), hashlib.blake2b(text, digest_size=16).digest() if text else b""
    )


def seen(**changed: dict[str, Value]) -> Observation:
    return Observation({**SURROUNDINGS, **changed}, Ran(0, stream(b"out\n"), stream(b"")))


def row_of(found: Comparison, group: str, field: str) -> ComparedRow:
    return next(row for row in found.rows if (row.group, row.field) == (group, field))


def outcome(host: Ran, worker: Ran, *secrets: str) -> Comparison:
    return compare(Observation(SURROUNDINGS, host), Observation(SURROUNDINGS, worker), secrets=secrets)


# --- the answers


def test_what_is_the_same_is_equivalent() -> None:
    found = compare(seen(), seen())
    assert (found.host_equivalent, found.behaved_alike, found.exit_code) == (
        ReachAnswer.YES,
        ReachAnswer.YES,
        0,
    )
    assert lines(found)[0] == "host-equivalent: yes; the command behaved the same"


def test_other_surroundings_are_not_equivalent_though_the_command_behaved_alike() -> None:
    found = compare(seen(), seen(network={"own loopback": False}))
    assert (found.host_equivalent, found.behaved_alike, found.exit_code) == (
        ReachAnswer.NO,
        ReachAnswer.YES,
        1,
    )


def test_the_same_surroundings_do_not_excuse_another_ending() -> None:
    found = outcome(Ran(0), Ran(1))
    assert (found.host_equivalent, found.behaved_alike, found.exit_code) == (
        ReachAnswer.YES,
        ReachAnswer.NO,
        1,
    )


@every_row("group", GROUPS[1:])
def test_a_group_that_nobody_could_see_leaves_the_answer_open(group: str) -> None:
    part = {name: fields for name, fields in SURROUNDINGS.items() if name != group}
    found = compare(seen(), Observation(part, seen().ran))
    assert (found.host_equivalent, found.exit_code) == (ReachAnswer.UNKNOWN, 2)


def test_a_difference_outweighs_what_is_unknown() -> None:
    found = compare(seen(), seen(network={"own loopback": None}, identity={"user": "1"}))
    assert row_of(found, "network", "own loopback").verdict is EquivalenceVerdict.UNKNOWN
    assert found.host_equivalent is ReachAnswer.NO


def test_surroundings_can_be_compared_without_running_anything() -> None:
    found = compare(replace(seen(), ran=None), replace(seen(), ran=None))
    assert (found.host_equivalent, found.behaved_alike) == (ReachAnswer.YES, ReachAnswer.UNKNOWN)


# --- the surroundings


@every_row(
    ("host", "worker", "verdict", "texts"),
    [
        ("a", "a", EquivalenceVerdict.SAME, ("a", "a")),
        ("a", "b", EquivalenceVerdict.DIFFERENT, ("a", "b")),
        (True, False, EquivalenceVerdict.WEAKER, ("yes", "no")),
        (False, True, EquivalenceVerdict.DIFFERENT, ("no", "yes")),
        (UNLIMITED, 1024, EquivalenceVerdict.WEAKER, ("unlimited", "1024")),
        (1024, UNLIMITED, EquivalenceVerdict.DIFFERENT, ("1024", "unlimited")),
        (("a", "b"), ("a",), EquivalenceVerdict.WEAKER, ("also b", "nothing more")),
        (("a", "b"), ("a", "c"), EquivalenceVerdict.DIFFERENT, ("also b", "also c")),
        (("a",), (), EquivalenceVerdict.WEAKER, ("a", "nothing")),
        ("a", None, EquivalenceVerdict.UNKNOWN, ("a", "unknown")),
        (None, None, EquivalenceVerdict.UNKNOWN, ("unknown", "unknown")),
    ],
)
def test_less_is_weaker_and_what_was_not_seen_is_unknown(
    host: Value, worker: Value, verdict: EquivalenceVerdict, texts: tuple[str, str]
) -> None:
    row = row_of(compare(seen(files={"x": host}), seen(files={"x": worker})), "files", "x")
    assert (row.verdict, (row.host, row.worker)) == (verdict, texts)


def test_a_long_list_is_shown_in_part() -> None:
    names = tuple(f"device{number}" for number in range(100))
    row = row_of(compare(seen(files={"devices": names}), seen(files={"devices": ()})), "files", "devices")
    assert row.host.endswith("and 94 more")


def test_only_a_difference_has_a_consequence() -> None:
    found = compare(seen(), seen(network={"own loopback": False}))
    assert row_of(found, "network", "own loopback").consequence
    assert not [row for row in found.rows if row.consequence and not row.differs]


def test_every_consequence_belongs_to_a_group() -> None:
    assert {group for group, _ in CONSEQUENCES} <= set(GROUPS)


# --- the environment


@pytest.mark.parametrize(
    ("host", "worker", "verdict"),
    [
        ({"TOKEN": "#aa"}, {"TOKEN": "#bb"}, EquivalenceVerdict.DIFFERENT),
        ({"TOKEN": "#aa"}, {}, EquivalenceVerdict.WEAKER),
        ({}, {"TOKEN": "#bb"}, EquivalenceVerdict.DIFFERENT),
        ({"TOKEN": "#aa"}, {"TOKEN": "#aa"}, EquivalenceVerdict.SAME),
    ],
)
def test_of_an_unknown_variable_only_the_name_is_shown(
    host: dict[str, Value], worker: dict[str, Value], verdict: EquivalenceVerdict
) -> None:
    row = row_of(compare(seen(environment=host), seen(environment=worker)), "environment", "TOKEN")
    assert row.verdict is verdict
    assert not {"#aa", "#bb"} & {row.host, row.worker}
    assert (row.host == row.worker) is (verdict is EquivalenceVerdict.SAME)


def test_harmless_values_are_shown() -> None:
    found = compare(seen(environment={"PATH": "/bin"}), seen(environment={"PATH": "/sbin"}))
    row = row_of(found, "environment", "PATH")
    assert (row.host, row.worker) == ("/bin", "/sbin")


@every_row("name", ["HTTP_PROXY", "DATABASE_URL", "SSH_AUTH_SOCK", "AWS_PROFILE", "LCX"])
def test_what_may_hold_a_password_is_not_harmless(name: str) -> None:
    assert not is_harmless(name)
    assert is_harmless("LC_ALL")


# --- the command


def test_the_first_line_that_differs_is_shown_from_both_sides() -> None:
    found = outcome(Ran(0, stream(b"a\nb\nc\n")), Ran(0, stream(b"a\nB\nC\n")))
    row = row_of(found, "outcome", "stdout")
    assert (row.verdict, row.host, row.worker) == (EquivalenceVerdict.DIFFERENT, "line 2: b", "line 2: B")


@pytest.mark.parametrize(
    ("host", "worker", "texts"),
    [
        (b"", b"x\n", ("nothing", "line 1: x")),
        (b"a\n", b"a\nb", ("line 2 is empty", "line 2: b")),
        (b"a", b"a\nb", ("ends before line 2", "line 2: b")),
        (b"\xff", b"\tx", ("line 1: \ufffd", "line 1:         x")),
    ],
)
def test_output_that_is_missing_or_no_text_is_shown_as_such(
    host: bytes, worker: bytes, texts: tuple[str, str]
) -> None:
    row = row_of(outcome(Ran(0, stream(host)), Ran(0, stream(worker))), "outcome", "stdout")
    assert (row.host, row.worker) == texts


def test_a_difference_beyond_what_is_kept_is_still_one() -> None:
    ones, others = stream(b"same\n" * 10 + b"a", kept=20), stream(b"same\n" * 10 + b"b", kept=20)
    found = outcome(Ran(0, ones), Ran(0, others))
    assert row_of(found, "outcome", "stdout").verdict is EquivalenceVerdict.DIFFERENT


def test_secrets_that_the_command_printed_are_not_shown_and_long_lines_are_cut() -> None:
    long = b"x" * 10 * MAX_LINE
    found = outcome(Ran(0, stream(b"key hunter2!"), stream(long)), Ran(0), "hunter2")
    text = "\n".join(lines(found))
    assert "key ***!" in text
    assert "hunter2" not in text
    assert len(row_of(found, "outcome", "stderr").host) < 2 * MAX_LINE


def test_a_command_that_never_ended_tells_nothing_and_one_side_that_did_everything() -> None:
    both = outcome(Ran(None), Ran(None))
    assert (both.behaved_alike, both.exit_code) == (ReachAnswer.UNKNOWN, 2)
    assert outcome(Ran(0), Ran(None)).behaved_alike is ReachAnswer.NO


def test_an_ending_is_shown_with_its_signal() -> None:
    row = row_of(outcome(Ran(0), Ran(159, note="SIGSYS")), "outcome", "exit code")
    assert (row.host, row.worker) == ("0", "159 (SIGSYS)")


# --- the status file


def test_a_status_tells_privileges_filters_and_signals() -> None:
    text = "Umask:\t0022\nSigIgn:\t0000000000001001\nSigBlk:\t0\nCapEff:\t3\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    found = of_status(text)
    assert found["files"] == {"umask": "0022"}
    assert found["process"] == {"ignored signals": ("1", "13"), "blocked signals": ()}
    assert found["confinement"]["capabilities"] == ("chown", "dac_override")
    assert found["confinement"]["capabilities to gain"] is None
    assert found["confinement"]["seccomp"] == "2"


def test_a_report_has_every_row_in_plain_values() -> None:
    tree = compare(seen(), seen(identity={"user": "1"})).report()
    assert (tree["schemaVersion"], tree["hostEquivalent"], tree["behavedAlike"]) == (1, "no", "yes")
    rows = tree["rows"]
    assert isinstance(rows, list)
    assert {"group", "field", "host", "worker", "verdict", "consequence"} == set(rows[0])


def test_the_outcome_comes_first_and_the_circumstances_are_counted() -> None:
    failed = Ran(1, stream(b"out\n"), stream(b""))
    worker = replace(seen(files={"/a": ("read",)}), ran=failed)
    found = compare(seen(files={"/a": ("read", "create")}), worker)
    text = lines(found, verbose=False)
    assert text[2].startswith(f"{OUTCOME} (")
    assert text[3] == "  exit code: 0 → 1"
    assert not any("/a" in line for line in text)
    assert "circumstances that differ: 1 of files (--verbose names them)" in text
    every = lines(found)
    assert every[2].startswith(f"{OUTCOME} (")
    assert any("/a: also create" in line for line in every)


def test_rows_that_say_the_same_share_a_line() -> None:
    found = compare(
        seen(files={"/a": ("read", "create"), "/b": ("read", "create")}),
        seen(files={"/a": ("read",), "/b": ("read",)}),
    )
    assert "  /a, /b: also create → nothing more" in lines(found)
