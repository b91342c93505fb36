import pytest

from holdfast.agents.evidence import evidence as e
from holdfast.agents.evidence.evidence import Source, TokenUsage, WorkerState
from tests.support.rows import every_row

CLAIMS: list[e.Claim] = [
    e.Ready(),
    e.Progress(e.Work.TOOL),
    e.Working(e.Work.THINKING),
    e.Idle(2.5),
    e.Unread(),
    e.Wants(e.Want.DECISION, "run it?", (e.AnswerOption("a", "allow_once", "Yes"),), "7"),
    e.Retrying(2, 10, e.Failure.AUTH, 401, 12.5),
    e.Denied("create", "/home/x/.local", "EROFS", "mkdir", rule="read-only", count=3),
    e.Foreseen("create", "/home/x/.local", "EROFS", rule="read-only", role="its state"),
    e.Obstructed(e.Obstacle.LOCK, "pid 7"),
    e.Requested(),
    e.Used(e.TokenUsage(1, 2, turns=3)),
    e.Result(ok=False, failure=e.Failure.MODEL, message="no such model", usage=e.TokenUsage(1, 2, 3, 0.5)),
    e.ToolFailed("make", 2),
    e.Trouble(e.Failure.NETWORK),
    e.Answered("7"),
    e.Drift("no-such-event", 2),
    e.Exited(None, 9, e.Failure.TIMEOUT),
    e.Vanished("its host is gone"),
    e.Unreached("no route", over=True),
]


@every_row("state", WorkerState)
def test_three_states_are_ends(state: WorkerState) -> None:
    assert state.ended == (state in {WorkerState.FAILED, WorkerState.COMPLETED, WorkerState.LOST})


def test_the_strongest_source_is_the_smallest() -> None:
    assert min(Source) is Source.EXIT
    assert max(Source) is Source.CLOCK


def test_usage_adds_up_and_a_price_is_unknown_until_somebody_says_one() -> None:
    assert TokenUsage(1, 2, 3, turns=4) + TokenUsage(10, 20, 30, turns=40) == TokenUsage(11, 22, 33, None, 44)
    assert TokenUsage(cost_usd=0.5) + TokenUsage() == TokenUsage(cost_usd=0.5)
    assert (TokenUsage(cost_usd=0.5) + TokenUsage(1, 2, cost_usd=0.25)) == TokenUsage(1, 2, cost_usd=0.75)
    assert TokenUsage(1, 2, 1).tokens == 3


@every_row("claim", CLAIMS, ids=lambda claim: type(claim).__name__)
def test_every_claim_comes_back_as_it_was(claim: e.Claim) -> None:
    entry = e.JournalEntry(e.Evidence(e.Source.PROTOCOL, 17.25, claim, "seen"), 9)
    line = e.encode_entry(entry)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert e.decode_entry(line) == entry


def test_every_claim_there_is_can_be_written() -> None:
    assert {type(claim) for claim in CLAIMS} == set(e.Claim.__args__)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"source":1,"at":1,"claim":"Nonsense","fields":{}}'])
def test_a_torn_or_foreign_line_is_no_entry(line: bytes) -> None:
    assert e.decode_entry(line) is None


def test_a_line_cut_anywhere_is_no_entry_and_no_error() -> None:
    line = e.encode_entry(e.JournalEntry(e.Evidence(e.Source.EXIT, 1.0, e.Exited(0)), 3)).rstrip()
    assert all(e.decode_entry(line[:end]) is None for end in range(len(line)))


def test_what_0_1_called_a_denial_without_having_seen_it_is_not_read_as_one() -> None:
    entry = e.JournalEntry(e.Evidence(Source.DENIAL, 1.0, e.Denied("create", "/x", "EROFS", "mkdir")), 0)
    line = e.encode_entry(entry)
    assert e.decode_entry(line) == entry
    assert e.decode_entry(line.replace(b'"syscall"', b'"predicted":false,"syscall"')) == entry
    assert e.decode_entry(line.replace(b'"syscall"', b'"predicted":true,"syscall"')) is None
