from holdfast.agents.evidence.evidence import (
    Answered,
    Claim,
    Drift,
    Exited,
    Idle,
    Obstacle,
    Obstructed,
    Progress,
    Ready,
    Requested,
    Result,
    Retrying,
    Source,
    Status,
    ToolFailed,
    Trouble,
    Unread,
    Usage,
    Used,
    Vanished,
    Want,
    Wants,
    Work,
    WorkerState,
    Working,
)
from holdfast.agents.evidence.evidence import Failure as F
from holdfast.agents.evidence.status import NAMES, WorkerLimits, classify
from holdfast.agents.evidence.why import RULES, age, claim_words, headline, why
from tests.support.evidence import Row, refused, story
from tests.support.rows import every_row


def test_every_rule_is_explained_and_no_other() -> None:
    assert set(RULES) == set(NAMES)


def explain(rows: list[Row], now: float) -> list[str]:
    return why(classify(story(*rows), now, started_at=0.0, limits=WorkerLimits()), now)


def test_a_wait_is_explained_with_evidence_contradiction_and_what_would_change_it() -> None:
    rows: list[Row] = [
        (10, Source.ESCAPE, Working(Work.THINKING), "state=working"),
        (40, Source.TTY, Wants(Want.PASSWORD, "Password:")),
    ]
    assert explain(rows, 52) == [
        "waiting (password) for 12 s: Password:",
        "rule proof: the kernel shows what it waits for, later than its own word",
        "evidence: tty, 12 s ago: wants password: Password:",
        "evidence: escape, 42 s ago: works (thinking) (state=working)",
        "contradiction: escape says running (thinking), tty says waiting (password)",
        "last sign of work: 42 s ago",
        "would change it: its input, or any progress",
    ]


def test_an_end_is_explained() -> None:
    rows: list[Row] = [
        (3, Source.DENIAL, refused("/home/u/.x", fatal=True)),
        (4, Source.EXIT, Exited(1)),
    ]
    assert explain(rows, 4 + 3600 * 3) == [
        "failed (sandbox) for 3 h: /home/u/.x: create refused with EROFS, rule the home is read-only, "
        "grant --write /home/u/.x",
        "rule exit-denied: the sandbox refused something, and it ended with an error",
        "evidence: exit, 3 h ago: exit code 1",
        "evidence: denial, 3 h ago: /home/u/.x: create refused with EROFS, rule the home is read-only, "
        "grant --write /home/u/.x",
        "would change it: nothing: it has ended",
    ]


def test_without_evidence_there_is_only_the_clock() -> None:
    assert "evidence: none, only the clock" in explain([], 3)


def test_flags_are_in_the_headline() -> None:
    status = Status(WorkerState.COMPLETED, flags=frozenset({"with-denials", "unverified"}), since=1)
    assert headline(status, 3) == "completed (unverified, with-denials) for 2 s"


@every_row(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (172800, "2 d"),
    ],
)
def test_an_age_is_in_the_unit_that_suits_it(seconds: float, words: str) -> None:
    assert age(seconds) == words


CLAIMS: list[tuple[Claim, str]] = [
    (Ready(), "takes part"),
    (Progress(Work.TOOL), "goes on (tool)"),
    (Working(Work.NETWORK), "works (network-wait)"),
    (Idle(), "nothing to do"),
    (Wants(Want.TRUST), "wants trust"),
    (Unread(), "waits for nobody: its terminal is not read"),
    (Answered("1"), "answered"),
    (Retrying(2, 5, F.AUTH, 401), "tries again, attempt 2 failed (auth HTTP 401)"),
    (Retrying(2, 5, None), "tries again, attempt 2 failed"),
    (refused("/x"), "/x: create refused with EROFS, rule the home is read-only, grant --write /x"),
    (Obstructed(Obstacle.LOCK, "held by pid 7"), "held up by lock: held by pid 7"),
    (Obstructed(Obstacle.STOPPED), "held up by stopped"),
    (Requested(), "sent a request to its provider"),
    (Used(Usage(2, 3)), "has used 5 tokens"),
    (Result(ok=True), "turn succeeded"),
    (Result(ok=False, http=500), "turn failed (HTTP 500)"),
    (ToolFailed("sh", 2), "tool failed: sh (exit code 2)"),
    (ToolFailed("edit"), "tool failed: edit"),
    (Trouble(F.QUOTA), "error (quota)"),
    (Drift("event x"), "said what we do not know: event x"),
    (Drift("event x", 10), "said what we do not know: event x (10 times)"),
    (Exited(None, 9), "ended by signal 9"),
    (Exited(3), "exit code 3"),
    (Vanished("no server"), "gone: no server"),
]


@every_row(("claim", "words"), CLAIMS)
def test_every_claim_has_words(claim: Claim, words: str) -> None:
    assert claim_words(claim) == words
