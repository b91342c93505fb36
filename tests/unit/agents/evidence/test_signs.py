"""Recorded screens of real CLIs, read with signs as the catalogue has them."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.agents.evidence.evidence import (
    Claim,
    Evidence,
    Idle,
    Progress,
    Source,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.agents.evidence.signs import (
    BOTTOM_LINES,
    STABLE_S,
    bottom,
    is_unknown_dialog,
    read_screen,
    read_stability,
    read_title,
)
from tests.support.rows import every_row

SCREENS: Final = Path(__file__).parents[1] / "screens"


@dataclass(frozen=True)
class Asks:
    pattern: re.Pattern[str]
    want: Want


@dataclass(frozen=True)
class Works:
    pattern: re.Pattern[str]
    work: Work


@dataclass(frozen=True)
class Record:
    wants: tuple[Asks, ...] = ()
    busy: tuple[Works, ...] = ()
    ready: tuple[re.Pattern[str], ...] = ()
    titles: tuple[tuple[str, Claim], ...] = field(default=())


def record(
    decision: str, busy: str, ready: str, *, trust: str = "$^", titles: tuple[tuple[str, Claim], ...] = ()
) -> Record:
    return Record(
        (Asks(re.compile(decision), Want.DECISION), Asks(re.compile(trust), Want.TRUST)),
        (Works(re.compile(busy), Work.THINKING),),
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
    "claude": record("Do you want to proceed", "esc to interrupt", "^\u276f", trust="one you trust"),
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
    is_dialog = name.split("-")[1] in ("trust", "approval")
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
