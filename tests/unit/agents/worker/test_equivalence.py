"""Where a worker is, judged from what was seen: the answer, and what matters to which CLI."""

from typing import Any

import msgspec
import pytest

from holdfast.agents.catalog.agent import StatePath
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.advice import Difference, EquivalenceReport
from holdfast.agents.worker.equivalence import (
    EXITS,
    ITSELF,
    Case,
    judge,
    lines,
    report_unknown,
)
from holdfast.doctor.compare.equivalence import OTHER_PROVIDER, RELOCATED, ReachAnswer, Value

HELD: dict[str, Value] = {
    "user namespace": "user:[1]",
    "mnt namespace": "mnt:[1]",
    "no new privileges": "0",
    "seccomp": "0",
    "capabilities": ("chown",),
}
HOST: dict[str, dict[str, Value]] = {
    "files": {
        "/home/.codex": ("read", "create"),
        "/w/.git": ("read", "create"),
        "/dev/shm": ("read", "create"),
    },
    "network": {"default route": True, "loopback of the host": True},
    "environment": {"PATH": "/bin", "API_KEY": "#1234"},
    "identity": {"user": "0 root"},
    "terminal": {"controlling terminal": True},
    "process": {"control group": "0::/a"},
    "confinement": {**HELD, "sees the processes outside": True},
}
CODEX_HOME = StatePath("{home}/.codex", "codex's home", "it cannot start", "CODEX_HOME")


def case(agent: str = "codex", **more: Any) -> Case:
    usual: dict[str, Any] = {"id": "w", "cwd": "/w", "state": {"/home/.codex": CODEX_HOME}}
    return Case(agent=CATALOG[agent], **{**usual, **more})


def seen(**changed: dict[str, Value]) -> dict[str, dict[str, Value]]:
    return {**HOST, **{group: {**HOST[group], **fields} for group, fields in changed.items()}}


def row(report: EquivalenceReport, field: str) -> Difference:
    return next(row for row in report.rows if row.field == field)


# --- the answer


def test_a_process_that_nothing_is_held_on_is_where_the_host_is() -> None:
    assert judge(HOST, HOST, HELD, case()).host_equivalent == ReachAnswer.YES


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user namespace", "user:[2]"),
        ("seccomp", "1"),
        ("no new privileges", "1"),
        ("capabilities", ()),
    ],
)
def test_whatever_is_still_held_on_the_process_is_named(field: str, value: Value) -> None:
    """Also where the probe, started the same way a moment later, came out free."""
    report = judge(HOST, HOST, {**HELD, field: value}, case())
    assert report.host_equivalent == ReachAnswer.NO
    assert field in report.why


def test_a_probe_that_is_confined_does_not_speak_for_a_process_that_is_not() -> None:
    confined = seen(confinement={"seccomp": "2", "no new privileges": "1"})
    assert judge(HOST, confined, HELD, case()).host_equivalent == ReachAnswer.YES


def test_a_domain_that_only_a_probe_can_feel_counts() -> None:
    report = judge(HOST, seen(confinement={"sees the processes outside": False}), HELD, case())
    assert report.host_equivalent == ReachAnswer.NO


def test_a_process_that_nobody_saw_is_not_called_free() -> None:
    report = judge(HOST, HOST, None, case())
    assert report.host_equivalent == ReachAnswer.UNKNOWN
    assert ITSELF in report.why


def test_a_process_that_nobody_saw_was_confined_if_its_probe_was() -> None:
    assert judge(HOST, seen(confinement={"seccomp": "2"}), None, case()).host_equivalent == ReachAnswer.NO


def test_a_namespace_that_may_not_be_read_leaves_the_answer_open() -> None:
    report = judge(HOST, HOST, {**HELD, "mnt namespace": None}, case())
    assert (report.host_equivalent, "mnt namespace" in report.why) == (ReachAnswer.UNKNOWN, True)


def test_a_probe_that_did_not_run_leaves_the_answer_open() -> None:
    assert judge(HOST, {}, HELD, case()).host_equivalent == ReachAnswer.UNKNOWN


def test_how_it_was_started_decides_nothing() -> None:
    other = seen(
        process={"control group": "0::/b"},
        terminal={"controlling terminal": False},
        environment={"PATH": "/sbin"},
    )
    assert judge(HOST, other, HELD, case()).host_equivalent == ReachAnswer.YES


def test_files_and_network_that_changed_meanwhile_decide_nothing() -> None:
    other = seen(files={"/dev/shm": ("read",)}, network={"default route": False})
    assert judge(HOST, other, HELD, case()).host_equivalent == ReachAnswer.YES


def test_somebody_else_is_somewhere_else() -> None:
    assert judge(HOST, seen(identity={"user": "1 other"}), HELD, case()).host_equivalent == ReachAnswer.NO


# --- what matters


def test_a_state_path_matters_by_what_the_cli_keeps_there() -> None:
    report = judge(HOST, seen(files={"/home/.codex": ("read",)}), HELD, case())
    found = row(report, "/home/.codex")
    assert (found.matters, found.consequence) == (True, "codex's home: it cannot start")


def test_the_work_tree_matters_and_other_places_do_not() -> None:
    report = judge(HOST, seen(files={"/w/.git": ("read",), "/dev/shm": ("read",)}), HELD, case())
    assert row(report, "/w/.git").matters
    assert not row(report, "/dev/shm").matters
    assert report.rows[0].field == "/w/.git"


@pytest.mark.parametrize(("agent", "matters"), [("codex", True), ("shell", False)])
def test_the_network_matters_to_whoever_has_a_provider(agent: str, matters: bool) -> None:
    report = judge(HOST, seen(network={"default route": False}), HELD, case(agent, state={}))
    assert row(report, "default route").matters is matters


@pytest.mark.parametrize("on_loopback", [True, False])
def test_the_loopback_matters_if_the_provider_is_there(on_loopback: bool) -> None:
    report = judge(HOST, seen(network={"loopback of the host": False}), HELD, case(on_loopback=on_loopback))
    assert row(report, "loopback of the host").matters is on_loopback


def test_variables_that_we_chose_matter_where_they_move_something() -> None:
    chosen = {"CODEX_HOME": "#1", "HOLDFAST_PROVIDER_KEY": "#2", "TMPDIR": "/x"}
    report = judge(HOST, seen(environment={**chosen}), HELD, case(chosen=frozenset(chosen)))
    assert row(report, "CODEX_HOME").consequence == RELOCATED
    assert row(report, "HOLDFAST_PROVIDER_KEY").consequence == OTHER_PROVIDER
    assert not row(report, "TMPDIR").matters


def test_a_variable_that_got_lost_matters_if_programs_are_found_by_it() -> None:
    part = {**HOST, "environment": {"API_KEY": HOST["environment"]["API_KEY"]}}
    assert row(judge(HOST, part, HELD, case()), "PATH").matters


@pytest.mark.parametrize("tty", [True, False])
def test_a_terminal_matters_to_whoever_has_one(tty: bool) -> None:
    report = judge(HOST, seen(terminal={"controlling terminal": False}), HELD, case(tty=tty))
    assert row(report, "controlling terminal").matters is tty


# --- for people and programs


def test_people_read_the_answer_first_then_what_matters_then_the_rest() -> None:
    changed = seen(files={"/home/.codex": ("read",), "/dev/shm": ("read",)})
    told = lines(judge(HOST, changed, {**HELD, "seccomp": "2"}, case(supervision=("refusals are watched",))))
    assert told[0].startswith("host-equivalent: no (")
    text = "\n".join(told)
    assert text.index("matters to codex") < text.index("/home/.codex") < text.index("the rest")
    assert text.index("the rest") < text.index("/dev/shm")
    assert "refusals are watched" in text


def test_a_value_that_may_be_secret_is_in_nothing() -> None:
    changed = seen(environment={"API_KEY": "#hunter2"})
    report = judge(seen(environment={"API_KEY": "#hunter1"}), changed, HELD, case())
    assert row(report, "API_KEY").verdict == "different"
    assert "hunter" not in msgspec.json.encode(report).decode() + "\n".join(lines(report))


def test_a_report_survives_its_journey() -> None:
    report = judge(HOST, HOST, HELD, case())
    assert msgspec.json.decode(msgspec.json.encode(report), type=EquivalenceReport) == report


def test_what_could_not_be_looked_at_has_its_reason_and_nothing_else() -> None:
    report = report_unknown("w", "codex", "the probe failed")
    assert lines(report) == ["host-equivalent: unknown (the probe failed)"]
    assert EXITS[report.host_equivalent] == 2
