"""What holds a worker up, and what frees it again."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from holdfast.agents.evidence import holdups
from holdfast.agents.evidence.digest import Digest
from holdfast.agents.evidence.evidence import (
    Answered,
    Claim,
    Evidence,
    Foreseen,
    Idle,
    Obstacle,
    Obstructed,
    Progress,
    Requested,
    Result,
    Retrying,
    Source,
    ToolFailed,
    Trouble,
    Want,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.evidence import Failure as F
from holdfast.agents.evidence.holdups import (
    BOTTOM_LINES,
    STABLE_S,
    BusySign,
    WantSign,
    bottom,
    is_unknown_dialog,
    read_screen,
    read_stability,
    read_title,
)
from tests.support.evidence import Row, refused, story
from tests.support.rows import every_row

PATH = "/home/u/.x/lock"
LOOP: list[Row] = [(at, Source.DENIAL, refused(PATH)) for at in (1, 2, 3)]
SCREENS: Final = Path(__file__).parents[1] / "screens"


def ask(*rows: Row, request: str = "1", at: float = 1.0) -> list[Row]:
    return [(at, Source.PROTOCOL, Wants(Want.DECISION, "run it?", request=request)), *rows]


def denied(rows: list[Row], now: float = 4.0) -> WorkerStatus | None:
    return holdups.denied_again(Digest(story(*rows), now, 0.0))


def test_two_denials_are_not_a_loop_and_three_are() -> None:
    assert denied(LOOP[:2]) is None
    status = denied(LOOP)
    assert status is not None
    assert (status.state, status.detail, status.since) == (WorkerState.BLOCKED, Obstacle.SANDBOX_PATH, 1)


def test_what_was_only_foreseen_holds_nobody_up_and_explains_a_lost_network() -> None:
    foreseen = Foreseen("create", PATH, "EROFS", "the home is read-only")
    assert denied([(at, Source.DENIAL, foreseen) for at in (1, 2, 3)]) is None
    provider: Row = (1, Source.DENIAL, Foreseen("connect", "h:443", "ENETUNREACH", "the network is off"))
    complains: Row = (2, Source.PROTOCOL, Trouble(F.NETWORK))
    status = holdups.cut_off(Digest(story(provider, complains), 3.0, 0.0))
    assert status is not None
    assert "to a probe in its sandbox" in status.about


def test_temporary_names_of_one_file_are_one_path() -> None:
    names = ("1a1d68af-1410-4244-a3c4-2a24e8039c8b", "d86cf981-fba9-4417-aca0-c909f70c0ea1", "4711")
    rows: list[Row] = [(at, Source.DENIAL, refused(f"/h/p.json.{name}.tmp")) for at, name in enumerate(names)]
    assert denied(rows) is not None
    assert denied([(at, Source.DENIAL, refused(f"/h/v{at}.json")) for at in range(3)]) is None


def test_denials_of_different_paths_are_not_a_loop() -> None:
    assert denied([(at, Source.DENIAL, refused(f"/x/{at}")) for at in range(9)]) is None


def test_denials_far_apart_are_not_a_loop() -> None:
    assert denied([(at, Source.DENIAL, refused(PATH)) for at in (0, 6, 12, 18)], 19) is None


def test_one_item_may_stand_for_many_denials() -> None:
    assert denied([(1, Source.DENIAL, refused(PATH, count=3))]) is not None
    assert (
        denied([(1, Source.DENIAL, refused(PATH, count=2)), (20, Source.DENIAL, refused(PATH))], 21) is None
    )


def test_a_loop_that_slowed_down_is_still_the_same_loop() -> None:
    status = denied([*LOOP, (30, Source.DENIAL, refused(PATH))], 31)
    assert status is not None
    assert status.evidence[0].at == 30


def test_of_two_loops_the_newest_is_named() -> None:
    other: list[Row] = [(at, Source.DENIAL, refused("/y")) for at in (4, 5, 6)]
    status = denied([*LOOP, *other], 6)
    assert status is not None
    assert "/y" in status.about


def test_a_refused_connection_is_the_network() -> None:
    rows: list[Row] = [(at, Source.DENIAL, refused("h:443", access="connect")) for at in (1, 2, 3)]
    status = denied(rows)
    assert status is not None
    assert status.detail == Obstacle.SANDBOX_NETWORK


@every_row(
    ("source", "claim"),
    [
        (Source.PROTOCOL, Progress(Work.TOOL)),
        (Source.PROTOCOL, Result(ok=True)),
        (Source.PROTOCOL, ToolFailed("sh", 1)),
        (Source.SOCKET, Requested()),
        (Source.PROTOCOL, Answered("1")),
        (Source.TEXT, Progress(Work.STREAMING)),
    ],
)
def test_progress_frees_it(source: Source, claim: Claim) -> None:
    assert denied([*LOOP, (3.5, source, claim)]) is None


def test_progress_in_the_middle_means_that_it_got_on() -> None:
    assert denied([LOOP[0], (1.5, Source.PROTOCOL, Progress(Work.TOOL)), *LOOP[1:]]) is None


@pytest.mark.parametrize("source", [Source.TITLE, Source.ESCAPE, Source.STABILITY])
def test_saying_that_it_works_does_not_free_it_while_the_loop_goes_on(source: Source) -> None:
    assert denied([*LOOP, (3.5, source, Working(Work.THINKING))]) is not None


def test_saying_so_frees_it_when_the_loop_is_over() -> None:
    later: Row = (3.5, Source.TITLE, Working(Work.THINKING))
    assert denied([*LOOP, later], 14) is None
    assert denied([later, *LOOP], 14) is not None


def test_time_alone_does_not_free_it() -> None:
    assert denied(LOOP, 1e6) is not None


@pytest.mark.parametrize("claim", [Idle(), Wants(Want.DECISION), Result(ok=True)])
def test_one_that_says_it_waits_is_not_held_up_by_what_it_cannot_write(claim: Claim) -> None:
    assert denied([(0.5, Source.ESCAPE, claim), *LOOP]) is None


def test_a_request_stays_open_while_other_tools_run() -> None:
    rows = ask((2, Source.PROTOCOL, Progress(Work.TOOL)), (3, Source.PROTOCOL, ToolFailed("sh", 1)))
    status = holdups.request(Digest(story(*rows), 9.0, 0.0))
    assert status is not None
    assert (status.detail, status.about, status.since) == (Want.DECISION, "run it?", 1.0)


@pytest.mark.parametrize(
    "claim", [Answered("1"), Result(ok=True), Progress(Work.STREAMING), Working(Work.THINKING)]
)
def test_an_answer_or_the_model_going_on_closes_a_request(claim: Claim) -> None:
    rows = ask((2, Source.PROTOCOL, claim))
    assert holdups.request(Digest(story(*rows), 9.0, 0.0)) is None


def test_an_answer_closes_its_own_request_only() -> None:
    rows = ask(*ask((3, Source.PROTOCOL, Answered("1")), request="2", at=2.0))
    status = holdups.request(Digest(story(*rows), 9.0, 0.0))
    assert status is not None
    assert status.since == 2.0
    unknown = ask((3, Source.PROTOCOL, Answered("9")))
    assert holdups.request(Digest(story(*unknown), 9.0, 0.0)) is not None


def test_the_oldest_request_is_shown_and_the_others_counted() -> None:
    status = holdups.request(Digest(story(*ask(*ask(request="2", at=2.0))), 9.0, 0.0))
    assert status is not None
    assert status.about == "run it? (and 1 more)"


def test_a_question_without_an_id_is_no_request() -> None:
    rows: list[Row] = [(1, Source.PROTOCOL, Wants(Want.QUESTION, "which?"))]
    digest = Digest(story(*rows), 2.0, 0.0)
    assert holdups.request(digest) is None
    assert holdups.wants(digest) is not None


def test_no_network_by_two_witnesses() -> None:
    connection: Row = (1, Source.DENIAL, refused("h:443", access="connect"))
    told: Row = (2, Source.TEXT, Trouble(F.NETWORK))
    for rows, expected in [
        ([connection, told], True),
        ([connection, (2, Source.PROTOCOL, Retrying(1, 5, F.NETWORK))], True),
        ([told, connection], False),
        ([connection], False),
        ([connection, (2, Source.TEXT, Trouble(F.AUTH))], False),
        ([(1, Source.DENIAL, refused(PATH)), told], False),
        ([connection, told, (3, Source.PROTOCOL, Progress(Work.STREAMING))], False),
        ([connection, told, (3, Source.ESCAPE, Idle())], False),
    ]:
        status = holdups.cut_off(Digest(story(*rows), 4.0, 0.0))
        assert (status is not None) is expected


def test_a_stopped_process_runs_again_by_any_progress_or_a_look() -> None:
    held: Row = (1, Source.CHILDREN, Obstructed(Obstacle.STOPPED))
    cases: list[tuple[Row, bool]] = [
        ((2, Source.TITLE, Working(Work.THINKING)), True),
        ((2, Source.CHILDREN, Idle()), False),
        ((2, Source.PROTOCOL, Progress(Work.STREAMING)), False),
    ]
    for row, expected in cases:
        status = holdups.stopped(Digest(story(held, row), 3.0, 0.0))
        assert (status is not None) is expected


def test_an_obstacle_is_over_with_any_progress() -> None:
    held: Row = (1, Source.FILE, Obstructed(Obstacle.LOCK))
    assert holdups.obstructed(Digest(story(held), 3.0, 0.0)) is not None
    after = story(held, (2, Source.TEXT, Progress(Work.STREAMING)))
    assert holdups.obstructed(Digest(after, 3.0, 0.0)) is None


@every_row(
    ("rows", "expected"),
    [
        ([(1, Source.ESCAPE, Working(Work.TOOL)), (2, Source.SYSCALL, Wants(Want.STDIN_EOF))], True),
        ([(1, Source.PROTOCOL, Working(Work.TOOL)), (2, Source.TTY, Wants(Want.PASSWORD))], True),
        ([(1, Source.TTY, Wants(Want.PASSWORD)), (2, Source.ESCAPE, Working(Work.TOOL))], False),
        ([(1, Source.ESCAPE, Working(Work.TOOL)), (2, Source.SYSCALL, Wants(Want.PROMPT))], False),
        ([(1, Source.ESCAPE, Working(Work.TOOL)), (2, Source.SCREEN, Wants(Want.DECISION))], False),
        ([(1, Source.ESCAPE, Wants(Want.TRUST)), (2, Source.TTY, Wants(Want.PASSWORD))], False),
        ([], False),
    ],
)
def test_the_kernel_proves_a_wait_that_is_newer_than_the_worker_s_word(
    rows: list[Row], expected: bool
) -> None:
    assert (holdups.proof(Digest(story(*rows), 3.0, 0.0)) is not None) is expected


def test_a_status_shows_what_decided_and_then_what_else_stands_bounded() -> None:
    rows: list[Row] = [(at, source, Wants(Want.DECISION)) for at, source in enumerate(sorted(Source)[1:])]
    status = holdups.wants(Digest(story(*rows), 20.0, 0.0))
    assert status is not None
    assert [item.source for item in status.evidence] == sorted(Source)[1 : 1 + holdups.MAX_SHOWN]


def test_one_that_says_it_rests_and_shows_a_question_waits_for_the_answer() -> None:
    rests: Row = (1, Source.TITLE, Idle())
    asks: Row = (2, Source.SCREEN, Wants(Want.TRUST))
    status = holdups.wants(Digest(story(rests, asks), 3.0, 0.0))
    assert status is not None
    assert status.detail == Want.TRUST
    assert holdups.wants(Digest(story((1, Source.TITLE, Working(Work.TOOL)), asks), 3.0, 0.0)) is None
    assert holdups.wants(Digest(story(rests), 3.0, 0.0)) is None


def test_a_refused_connection_explains_a_silence_until_it_gets_on() -> None:
    denied: Row = (1, Source.DENIAL, refused("127.0.0.1:9", access="connect"))
    assert holdups.unreachable(Digest(story(denied), 3.0, 0.0)) is not None
    later: Row = (2, Source.PROTOCOL, Progress(Work.STREAMING))
    assert holdups.unreachable(Digest(story(denied, later), 3.0, 0.0)) is None


def test_an_attempt_after_no_answer_at_all_complains_of_the_network() -> None:
    denied: Row = (1, Source.DENIAL, refused("127.0.0.1:9", access="connect"))
    silent: Row = (2, Source.PROTOCOL, Retrying(1, None, None))
    answered: Row = (2, Source.PROTOCOL, Retrying(1, None, None, 500))
    assert holdups.cut_off(Digest(story(denied, silent), 3.0, 0.0)) is not None
    assert holdups.cut_off(Digest(story(denied, answered), 3.0, 0.0)) is None


def test_the_screen_says_what_the_terminal_is_waited_for() -> None:
    reads: Row = (1, Source.SYSCALL, Wants(Want.PROMPT))
    dialog: Row = (1, Source.SCREEN, Wants(Want.DECISION, "run it?"))
    found = holdups.wants(Digest(story(reads, dialog), 2.0, 0.0))
    assert found is not None
    assert (found.state, found.detail) == (WorkerState.WAITING, Want.DECISION)
    working: Row = (1, Source.SYSCALL, Working(Work.TOOL))
    assert holdups.wants(Digest(story(working, dialog), 2.0, 0.0)) is None


@dataclass(frozen=True)
class Record:
    wants: tuple[WantSign, ...] = ()
    busy: tuple[BusySign, ...] = ()
    ready: tuple[re.Pattern[str], ...] = ()
    titles: tuple[tuple[str, Claim], ...] = field(default=())


def record(
    decision: str, busy: str, ready: str, *, trust: str = "$^", titles: tuple[tuple[str, Claim], ...] = ()
) -> Record:
    return Record(
        (WantSign(re.compile(decision), Want.DECISION), WantSign(re.compile(trust), Want.TRUST)),
        (BusySign(re.compile(busy), Work.THINKING),),
        (re.compile(ready, re.MULTILINE),),
        titles,
    )


WORKING: Final = Working(Work.THINKING)
RECORDS: Final = {
    "codex": record(
        "Would you like to run",
        "esc to interrupt",
        "^\u203a Ask",
        trust="Trust this folder",
        titles=(("[ ! ] Action Required", Wants(Want.DECISION)), *((char, WORKING) for char in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")),
    ),
    "claude": record(
        "Do you want to proceed", "esc to interrupt", "^\u276f", trust="one you trust|you accept all"
    ),
    "opencode": record("△ Permission required", "esc interrupt", "ctrl\\+p commands"),
    "gemini": record(
        "Allow execution of",
        "esc to cancel",
        "Type your message",
        trust="Do you trust the files",
        titles=(("◇", Idle()), ("✦", WORKING), ("✋", Wants(Want.DECISION))),
    ),
    "qwen": record(
        "Allow execution of",
        "esc to cancel",
        "Type your message",
        titles=(("◐", WORKING), ("✳", Wants(Want.DECISION))),
    ),
}
MEANT: Final = {
    "trust": (Wants, Want.TRUST),
    "idle": (Wants, Want.PROMPT),
    "thinking": (Working, Work.THINKING),
    "approval": (Wants, Want.DECISION),
    "tool": (Working, Work.THINKING),
    "done": (Wants, Want.PROMPT),
    "failed": (Wants, Want.PROMPT),
    "retrying": (Working, Work.THINKING),
    "bypass": (Wants, Want.TRUST),
    "again": (Wants, Want.DECISION),
}
RECORDED: Final = sorted(path.stem for path in SCREENS.iterdir())


def recorded(name: str) -> tuple[str, list[str]]:
    title, *lines = (SCREENS / f"{name}.txt").read_text("utf-8").splitlines()
    return title, lines


def meaning(evidence: Evidence | None) -> tuple[type[Claim], Want | Work]:
    assert evidence is not None
    match evidence.claim:
        case Wants(want=want):
            return Wants, want
        case Working(work=work):
            return Working, work
        case other:
            raise AssertionError(other)


@every_row("name", RECORDED)
def test_a_recorded_screen_says_what_the_program_was_doing(name: str) -> None:
    cli, state = name.split("-")
    found = read_screen(recorded(name)[1], RECORDS[cli], 7.0)
    assert meaning(found) == MEANT[state]
    assert found is not None
    assert (found.source, found.at) == (Source.SCREEN, 7.0)


@every_row("name", RECORDED)
def test_a_recorded_dialog_is_never_taken_for_a_prompt_by_a_cli_that_nobody_knows(name: str) -> None:
    found = read_screen(recorded(name)[1], Record(ready=(re.compile(""),)), 7.0)
    assert found is not None
    is_dialog = name.split("-")[1] in ("trust", "approval", "bypass", "again")
    assert is_unknown_dialog(found) is is_dialog
    assert meaning(found) == (Wants, Want.DECISION if is_dialog else Want.PROMPT)


@every_row(
    ("name", "claim"),
    [
        ("codex-thinking", WORKING),
        ("codex-approval", Wants(Want.DECISION)),
        ("codex-done", None),
        ("claude-approval", None),
        ("gemini-idle", Idle()),
        ("gemini-trust", Idle()),  # its title does not know of the dialog: the screen must be asked as well
        ("gemini-thinking", WORKING),
        ("gemini-approval", Wants(Want.DECISION)),
        ("qwen-approval", Wants(Want.DECISION)),
        ("qwen-done", None),
        ("opencode-approval", None),
    ],
)
def test_a_recorded_title_says_what_it_can(name: str, claim: Claim | None) -> None:
    found = read_title(recorded(name)[0], RECORDS[name.split("-")[0]], 7.0)
    assert (found.claim if found else None) == claim


def test_only_the_beginning_of_a_title_counts() -> None:
    assert read_title("about ✋ Action Required", RECORDS["gemini"], 1.0) is None
    assert read_title("", RECORDS["gemini"], 1.0) is None


def test_a_question_comes_before_work_and_work_before_readiness() -> None:
    both = ["⠋ Thinking... (esc to cancel, 5s)", "Allow execution of [Shell]?", "> Type your message"]
    assert meaning(read_screen(both, RECORDS["gemini"], 1.0)) == (Wants, Want.DECISION)
    assert meaning(read_screen([both[0], both[2]], RECORDS["gemini"], 1.0)) == WORKING_MEANING


WORKING_MEANING: Final = (Working, Work.THINKING)


def test_the_question_is_quoted_without_its_frame() -> None:
    found = read_screen(["│ Allow execution of [Shell]?      │"], RECORDS["gemini"], 1.0)
    assert found is not None
    assert found.claim == Wants(Want.DECISION, question="Allow execution of [Shell]?")


def test_what_stands_far_above_is_not_a_dialog() -> None:
    talk = ["Allow execution of [Shell]?", "", *(f"line {n}" for n in range(BOTTOM_LINES))]
    assert read_screen(talk, RECORDS["gemini"], 1.0) is None
    assert meaning(read_screen(talk[:-1], RECORDS["gemini"], 1.0)) == (Wants, Want.DECISION)


def test_frames_and_blank_lines_do_not_push_a_dialog_away() -> None:
    assert bottom(["question", *["│     │", "", "╭─────╮"] * 20]) == "question"


def test_a_screen_at_rest_and_one_that_moves() -> None:
    moving = read_stability(5.0, 5.0)
    assert moving is not None
    assert moving.claim == Progress(Work.STREAMING)
    assert read_stability(5.0, 5.0 + STABLE_S / 2) is None
    resting = read_stability(5.0, 5.0 + STABLE_S)
    assert resting is not None
    assert resting.claim == Idle(since=5.0)


def test_refusals_do_not_hold_up_one_that_shows_its_prompt() -> None:
    prompt: Row = (5, Source.SCREEN, Wants(Want.PROMPT))
    assert denied(LOOP) is not None
    assert denied([*LOOP, prompt], 6.0) is None
    assert denied([*LOOP, (5, Source.TITLE, Idle()), prompt], 6.0) is None
    assert denied([*LOOP, (5, Source.SCREEN, Working(Work.THINKING))], 6.0) is not None
