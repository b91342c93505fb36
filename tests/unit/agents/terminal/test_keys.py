import pytest

from holdfast.agents.evidence.evidence import (
    Claim,
    Evidence,
    Failure,
    Obstacle,
    Source,
    Want,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.holdups import read_screen
from holdfast.agents.terminal.keys import (
    CHANGED_WITHIN_S,
    ENTER_AFTER_S,
    ENTER_AGAIN_S,
    KEYS,
    MAX_LINE,
    MAX_TEXT,
    SHOWN_WITHIN_S,
    Delivery,
    Outcome,
    Shown,
    WaitFor,
    Write,
    encode_paste,
    refuse_key,
    refuse_text,
)
from holdfast.errors import InvalidRequest, UsageError
from tests.support.rows import every_row
from tests.unit.agents.evidence.test_holdups import Record


def waiting(want: Want, source: Source = Source.ESCAPE) -> WorkerStatus:
    return WorkerStatus(WorkerState.WAITING, want, evidence=(Evidence(source, 1.0, Wants(want)),))


def on_screen(claim: Claim) -> Evidence:
    return Evidence(Source.SCREEN, 2.0, claim)


OTHERS = [
    WorkerStatus(WorkerState.STARTING),
    WorkerStatus(WorkerState.RUNNING, Work.THINKING),
    WorkerStatus(WorkerState.BLOCKED, Obstacle.STOPPED),
    WorkerStatus(WorkerState.STALLED),
    WorkerStatus(WorkerState.WAITING),
]
ENDED = [
    WorkerStatus(WorkerState.FAILED, failure=Failure.CRASH),
    WorkerStatus(WorkerState.COMPLETED),
    WorkerStatus(WorkerState.LOST),
]
TEXT_WANTS = [Want.PROMPT, Want.QUESTION]


# --- where text may be typed


@every_row("want", TEXT_WANTS)
@every_row("source", [Source.PROTOCOL, Source.ESCAPE, Source.SYSCALL, Source.TITLE, Source.SCREEN])
def test_text_is_typed_where_the_worker_is_known_to_wait_for_it(want: Want, source: Source) -> None:
    refuse_text(waiting(want, source), screen=None, password=False)
    refuse_text(waiting(want, source), screen=on_screen(Wants(Want.PROMPT)), password=False)


@every_row("status", [*OTHERS, *ENDED, *(waiting(w) for w in Want if w not in TEXT_WANTS)], ids=str)
def test_text_is_typed_nowhere_else(status: WorkerStatus) -> None:
    with pytest.raises(InvalidRequest) as refused:
        refuse_text(status, screen=None, password=False)
    assert refused.value.remedy


@pytest.mark.parametrize("want", TEXT_WANTS)
def test_text_is_not_typed_where_nothing_but_silence_speaks_for_it(want: Want) -> None:
    for status in (
        waiting(want, Source.STABILITY),
        waiting(want, Source.CLOCK),
        WorkerStatus(WorkerState.WAITING, want),
    ):
        with pytest.raises(InvalidRequest):
            refuse_text(status, screen=None, password=False)


@pytest.mark.parametrize(
    "claim", [Wants(Want.DECISION), Wants(Want.TRUST), Wants(Want.LOGIN), Working(Work.THINKING)], ids=str
)
def test_the_screen_of_now_forbids_what_an_older_status_allows(claim: Claim) -> None:
    with pytest.raises(InvalidRequest):
        refuse_text(waiting(Want.PROMPT, Source.TITLE), screen=on_screen(claim), password=False)


def test_nothing_is_typed_at_a_password_prompt_whatever_the_status_says() -> None:
    with pytest.raises(InvalidRequest):
        refuse_text(waiting(Want.PROMPT), screen=None, password=True)
    for name in ("enter", "y"):
        with pytest.raises(InvalidRequest):
            refuse_key(name, waiting(Want.PROMPT), screen=None, password=True)
        with pytest.raises(InvalidRequest):
            refuse_key(name, waiting(Want.PASSWORD), screen=None, password=False)
    refuse_key("ctrl-c", waiting(Want.PASSWORD), screen=None, password=True)


# --- where keys may be pressed


@every_row("want", [Want.DECISION, Want.TRUST, Want.LOGIN, Want.PAGER, Want.EDITOR, *TEXT_WANTS])
def test_keys_answer_a_dialog_that_is_known(want: Want) -> None:
    refuse_key("enter", waiting(want), screen=None, password=False)


def test_a_dialog_that_is_not_known_takes_a_key_that_somebody_sends_and_no_text() -> None:
    dialog = read_screen(["A new question", "● 1. Delete everything", "  2. Keep it"], Record(), 2.0)
    for name in ("enter", "1", "escape"):
        refuse_key(name, waiting(Want.DECISION, Source.SCREEN), screen=dialog, password=False)
    with pytest.raises(InvalidRequest):
        refuse_key("enter", waiting(Want.DECISION, Source.STABILITY), screen=None, password=False)
    with pytest.raises(InvalidRequest):
        refuse_text(waiting(Want.PROMPT), screen=dialog, password=False)


@pytest.mark.parametrize("name", ["escape", "ctrl-c"])
def test_what_works_can_be_interrupted_and_what_starts_or_ended_not(name: str) -> None:
    refuse_key(name, WorkerStatus(WorkerState.RUNNING, Work.TOOL), screen=None, password=False)
    refuse_key(name, WorkerStatus(WorkerState.STALLED), screen=None, password=False)
    for status in (WorkerStatus(WorkerState.STARTING), *ENDED):
        with pytest.raises(InvalidRequest):
            refuse_key(name, status, screen=None, password=False)


def test_other_keys_do_not_reach_what_works() -> None:
    for status in OTHERS:
        with pytest.raises(InvalidRequest):
            refuse_key("enter", status, screen=None, password=False)


def test_a_key_has_a_name() -> None:
    assert (KEYS["enter"], KEYS["ctrl-c"], KEYS["ctrl-z"], KEYS["y"], KEYS["~"]) == (
        b"\r",
        b"\3",
        b"\x1a",
        b"y",
        b"~",
    )
    assert KEYS["up"] == b"\x1b[A"
    with pytest.raises(UsageError):
        refuse_key("hyper-x", waiting(Want.PROMPT), screen=None, password=False)


# --- what is written


def test_text_is_one_paste_where_the_program_knows_pastes() -> None:
    assert (
        encode_paste("do\nthis\té", bracketed=True, canonical=False)
        == b"\x1b[200~do\rthis\t\xc3\xa9\x1b[201~"
    )
    assert encode_paste("do this", bracketed=False, canonical=False) == b"do this"


@every_row(
    "text", ["a\x1b[201~rm", "a\rb", "a\x03", "a\x7f", "a\x9b", "a\x00", "a\x0bb", "a\x85b", "", " \n"]
)
def test_a_text_cannot_leave_its_paste_or_press_keys(text: str) -> None:
    with pytest.raises(UsageError):
        encode_paste(text, bracketed=True, canonical=False)


def test_lines_are_not_submitted_one_by_one() -> None:
    with pytest.raises(UsageError):
        encode_paste("one\ntwo", bracketed=False, canonical=True)


def test_no_more_is_typed_than_arrives() -> None:
    assert encode_paste("x" * MAX_LINE, bracketed=False, canonical=True) == b"x" * MAX_LINE
    assert encode_paste("x" * (MAX_LINE + 1), bracketed=False, canonical=False)
    with pytest.raises(UsageError):
        encode_paste("x" * (MAX_LINE + 1), bracketed=False, canonical=True)
    with pytest.raises(UsageError):
        encode_paste("x" * (MAX_TEXT + 1), bracketed=True, canonical=False)


# --- the delivery


ENTERED = 11.0 + ENTER_AFTER_S


def entered(delivery: Delivery, before: Shown, typed: Shown) -> None:
    """Take it to Enter."""
    delivery.step(10.0, before)
    delivery.step(11.0, typed)
    assert delivery.step(ENTERED, typed) == Write(b"\r")


def test_text_then_enter_then_a_change() -> None:
    delivery = Delivery(b"text")
    assert delivery.step(10.0, Shown(b"before")) == Write(b"text")
    assert delivery.step(10.01, Shown(b"before")) == WaitFor(10.0 + SHOWN_WITHIN_S)
    assert delivery.step(10.5, Shown(b"shown")) == WaitFor(10.5 + ENTER_AFTER_S)
    assert delivery.step(10.5 + ENTER_AFTER_S, Shown(b"shown")) == Write(b"\r")
    assert delivery.step(10.9, Shown(b"shown")) == WaitFor(10.5 + ENTER_AFTER_S + ENTER_AGAIN_S)
    assert delivery.step(11.0, Shown(b"working")) is Outcome.SUBMITTED


def test_enter_is_tried_where_nothing_is_shown() -> None:
    delivery = Delivery(b"text")
    delivery.step(10.0, Shown(b"same"))
    assert delivery.step(10.0 + SHOWN_WITHIN_S, Shown(b"same")) == Write(b"\r")


def test_without_a_change_it_is_typed_and_not_submitted() -> None:
    delivery = Delivery(b"text")
    entered(delivery, Shown(b"a"), Shown(b"b"))
    assert delivery.step(15.0, Shown(b"b")) == WaitFor(ENTERED + CHANGED_WITHIN_S)
    assert delivery.step(ENTERED + CHANGED_WITHIN_S, Shown(b"b")) is Outcome.TYPED


def test_what_nobody_read_was_not_submitted_even_if_the_terminal_shows_it() -> None:
    delivery = Delivery(b"text")
    entered(delivery, Shown(b"a"), Shown(b"b"))
    unread = Shown(b"c", unread=5)
    assert delivery.step(12.0, unread) == WaitFor(ENTERED + ENTER_AGAIN_S)
    assert delivery.step(ENTERED + CHANGED_WITHIN_S, unread) is Outcome.TYPED


EMPTY, TYPED = Shown(b"logo, > type here", b"> type here"), Shown(b"logo, > text", b"> text")


@every_row(
    ("seen", "outcome"),
    [
        (Shown(b"title changed, > text", b"> text"), None),  # it says nothing of the text
        (Shown(b"tips, > text", b"tips, > text"), None),  # nor does something that is drawn around it
        (Shown(b"logo, > text", b"> text", works=True), Outcome.SUBMITTED),
        (Shown(b"text, > type here", b"> type here"), Outcome.SUBMITTED),  # a command of its own
        (Shown(b"text, > type here", b"> type here", unread=1), None),
    ],
)
def test_of_a_program_that_shows_its_work_a_changed_screen_is_not_enough(
    seen: Shown, outcome: Outcome | None
) -> None:
    delivery = Delivery(b"text", shows_work=True)
    entered(delivery, EMPTY, TYPED)
    step = delivery.step(12.0, seen)
    assert step == (outcome or WaitFor(ENTERED + ENTER_AGAIN_S))


def test_enter_is_pressed_again_where_the_text_still_stands_in_the_input_line() -> None:
    delivery = Delivery(b"text", shows_work=True)
    entered(delivery, EMPTY, TYPED)
    due = ENTERED + ENTER_AGAIN_S
    assert delivery.step(due, TYPED) == Write(b"\r")
    assert delivery.entered_at == ENTERED
    assert delivery.step(due + ENTER_AGAIN_S, TYPED) == Write(b"\r")
    late = due + ENTER_AGAIN_S + CHANGED_WITHIN_S
    assert delivery.step(late - 1, TYPED) == WaitFor(late)
    assert delivery.step(late, TYPED) is Outcome.TYPED


@every_row(
    "seen",
    [
        Shown(b"a dialog", b"1. yes"),  # Enter would answer it
        Shown(b"logo, > text", b"> text", unread=1),  # the first Enter was not read yet
        EMPTY,
    ],
)
def test_enter_is_not_pressed_again_otherwise(seen: Shown) -> None:
    delivery = Delivery(b"text", shows_work=True)
    entered(delivery, EMPTY, TYPED)
    assert not isinstance(delivery.step(ENTERED + ENTER_AGAIN_S, seen), Write)
