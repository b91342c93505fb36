"""What a living worker is doing, as tables of evidence: first what real CLIs do, then rule by rule."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

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
    TokenUsage,
    ToolFailed,
    Trouble,
    Unreached,
    Unread,
    Used,
    Vanished,
    Want,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.evidence import Failure as F
from holdfast.agents.evidence.holdups import STABLE_S
from holdfast.agents.evidence.status import (
    HOLD_S,
    NAMES,
    PROVIDER_QUIET_S,
    QUIET_S,
    REASONS,
    RULES,
    START_S,
    STORM,
    STORM_REQUESTS,
    STORM_S,
    WorkerLimits,
    WorkerStop,
    age,
    claim_words,
    classify,
    decide_end,
    headline,
    why,
)
from holdfast.agents.evidence.verdict import ExitRules
from tests.support.evidence import Row, refused, story
from tests.support.rows import every_row

LOCK = "/home/u/.gemini/projects.json.lock"
DB = "/home/u/.local/share/opencode/opencode.db"

READY: Row = (1, Source.PROTOCOL, Ready())
THINKS = Working(Work.THINKING)
IN_FLIGHT = Working(Work.NETWORK)


class Story(NamedTuple):
    rows: Sequence[Row]
    now: float
    state: WorkerState
    detail: str
    rule: str
    start_s: float = START_S


def look(rows: Sequence[Row], now: float, *, start_s: float = START_S) -> WorkerStatus:
    return classify(story(*rows), now, started_at=0.0, limits=WorkerLimits(start_s=start_s))


REAL = {
    # its environment fails
    "codex waits for the end of an open stdin and says nothing more": Story(
        [
            (0.4, Source.TEXT, Ready(), "Reading additional input from stdin..."),
            (1.0, Source.SYSCALL, Wants(Want.STDIN_EOF, "close stdin"), "read(0) on our pipe"),
        ],
        200,
        WorkerState.WAITING,
        "stdin-eof",
        "wants",
    ),
    "opencode does the same without a word": Story(
        [(9.0, Source.SYSCALL, Wants(Want.STDIN_EOF), "epoll_pwait on our pipe")],
        20,
        WorkerState.WAITING,
        "stdin-eof",
        "wants",
    ),
    "gemini retries its lock for ever: 24 refusals in 25 s": Story(
        [(1.0 + at * 25 / 24, Source.DENIAL, refused(LOCK)) for at in range(24)],
        26,
        WorkerState.BLOCKED,
        "sandbox-path",
        "denied-again",
    ),
    "gemini's loop is seen at its third refusal": Story(
        [(1.0 + at, Source.DENIAL, refused(LOCK)) for at in range(3)],
        3,
        WorkerState.BLOCKED,
        "sandbox-path",
        "denied-again",
    ),
    "gemini's title does not hide the loop": Story(
        [(0.5, Source.TITLE, THINKS, "✦ Working…")]
        + [(1.0 + at, Source.DENIAL, refused(LOCK)) for at in range(3)],
        3.5,
        WorkerState.BLOCKED,
        "sandbox-path",
        "denied-again",
    ),
    "claude writes nothing, and works": Story(
        [
            (0.2, Source.DENIAL, refused("/home/u/.claude.json")),
            (0.6, Source.PROTOCOL, Ready()),
            (0.7, Source.DENIAL, refused("/home/u/.claude.json")),
            (0.9, Source.PROTOCOL, Progress(Work.STREAMING)),
            (1.0, Source.DENIAL, refused("/home/u/.claude.json")),
        ],
        2,
        WorkerState.RUNNING,
        "streaming",
        "progress",
    ),
    "codex without a route says that it reconnects": Story(
        [
            (1, Source.PROTOCOL, Ready()),
            (20, Source.PROTOCOL, Retrying(1, 5, F.NETWORK), "Reconnecting... 1/5"),
            (45, Source.PROTOCOL, Retrying(2, 5, F.NETWORK), "Reconnecting... 2/5"),
        ],
        60,
        WorkerState.RUNNING,
        "retrying",
        "retrying",
    ),
    "codex without a route in a sandbox without a network": Story(
        [
            (1, Source.PROTOCOL, Ready()),
            (2, Source.DENIAL, refused("api.example.com:443", access="connect")),
            (20, Source.PROTOCOL, Retrying(1, 5, F.NETWORK), "Reconnecting... 1/5"),
        ],
        25,
        WorkerState.BLOCKED,
        "sandbox-network",
        "cut-off",
    ),
    "claude in text mode is silent, its socket is not": Story(
        [(2, Source.SOCKET, IN_FLIGHT)], 100, WorkerState.RUNNING, "network-wait", "working"
    ),
    "codex asks whether it may trust the directory": Story(
        [(3, Source.SCREEN, Wants(Want.TRUST, "Do you trust this directory?"))],
        60,
        WorkerState.WAITING,
        "trust",
        "wants",
    ),
    "opencode needs 50 s on a cold host, as its record says": Story(
        [(1, Source.STABILITY, Working(Work.STREAMING))], 50, WorkerState.STARTING, "", "starting", start_s=60
    ),
    # its provider fails
    "claude tries a wrong key again": Story(
        [
            (0.6, Source.PROTOCOL, Ready()),
            (1.0, Source.PROTOCOL, Retrying(1, 10, F.AUTH, 401, next_at=1.6)),
            (1.6, Source.PROTOCOL, Retrying(2, 10, F.AUTH, 401, next_at=2.8)),
        ],
        2,
        WorkerState.RUNNING,
        "retrying",
        "retrying",
    ),
    "qwen waits 60 s before it tries again": Story(
        [(3, Source.PROTOCOL, Ready()), (4, Source.PROTOCOL, Retrying(1, 10, F.RATE_LIMIT, 429, next_at=64))],
        63,
        WorkerState.RUNNING,
        "retrying",
        "retrying",
    ),
    "qwen waits 120 s before it tries again: no stall": Story(
        [(64, Source.PROTOCOL, Retrying(2, 10, F.RATE_LIMIT, 429, next_at=184))],
        180,
        WorkerState.RUNNING,
        "retrying",
        "retrying",
    ),
    "gemini tells of its retries on stderr only": Story(
        [
            (6, Source.PROTOCOL, Ready()),
            (7, Source.SOCKET, IN_FLIGHT),
            (8, Source.TEXT, Retrying(1, None, F.RATE_LIMIT, 429), "Attempt 1 failed. Retrying with backoff"),
        ],
        9,
        WorkerState.RUNNING,
        "retrying",
        "retrying",
    ),
    "a provider that accepts and never answers": Story(
        [(1, Source.PROTOCOL, Ready()), (2, Source.SOCKET, IN_FLIGHT)],
        2 + PROVIDER_QUIET_S + 1,
        WorkerState.STALLED,
        "network-wait",
        "silent-provider",
    ),
    "a spinner does not hide a silent provider": Story(
        [READY, (2, Source.SOCKET, IN_FLIGHT)]
        + [(3.0 + at, Source.STABILITY, Working(Work.STREAMING)) for at in range(125)],
        130,
        WorkerState.STALLED,
        "network-wait",
        "silent-provider",
    ),
    "a stream that stalls midway": Story(
        [(1, Source.PROTOCOL, Ready()), (3, Source.PROTOCOL, Progress(Work.STREAMING))],
        3 + QUIET_S + 1,
        WorkerState.STALLED,
        "streaming",
        "quiet",
    ),
    "opencode's silent loop on an empty answer: 370 requests in 180 s": Story(
        [(at * 180 / 370, Source.SOCKET, Requested()) for at in range(120)],
        58,
        WorkerState.RUNNING,
        "retrying",
        "request-storm",
    ),
    # it wants a decision
    "codex's escape says that it is blocked on a permission": Story(
        [
            (5, Source.ESCAPE, THINKS),
            (9, Source.ESCAPE, Wants(Want.DECISION), "kind=permission"),
            (10, Source.TITLE, Wants(Want.DECISION), "[ ! ] Action Required"),
        ],
        9.1,
        WorkerState.WAITING,
        "decision",
        "wants",
    ),
    "opencode's only sign is on its screen": Story(
        [
            (9, Source.STABILITY, Working(Work.STREAMING)),
            (12, Source.SCREEN, Wants(Want.DECISION), "△ Permission required"),
        ],
        12,
        WorkerState.WAITING,
        "decision",
        "wants",
    ),
    "gemini over ACP asks in its protocol": Story(
        [
            (6, Source.PROTOCOL, Ready()),
            (8, Source.PROTOCOL, Progress(Work.TOOL)),
            (8, Source.PROTOCOL, Wants(Want.DECISION, "run rm?", request="7")),
        ],
        600,
        WorkerState.WAITING,
        "decision",
        "request",
    ),
    "a connection waits for an answer, whatever the model does meanwhile": Story(
        [
            (6, Source.PROTOCOL, Ready()),
            (8, Source.DENIAL, Wants(Want.NETWORK, "curl wants to reach api.test:443", request="n1")),
            (20, Source.PROTOCOL, Progress(Work.STREAMING)),
        ],
        30,
        WorkerState.WAITING,
        "network",
        "request",
    ),
    "a question about a host that was answered is none any more": Story(
        [
            (6, Source.PROTOCOL, Ready()),
            (8, Source.DENIAL, Wants(Want.NETWORK, "curl wants to reach api.test:443", request="n1")),
            (20, Source.DENIAL, Answered("n1")),
            (21, Source.PROTOCOL, Progress(Work.STREAMING)),
        ],
        22,
        WorkerState.RUNNING,
        "streaming",
        "progress",
    ),
    "claude's session record says what it waits for": Story(
        [(1, Source.FILE, THINKS, "busy"), (9, Source.FILE, Wants(Want.DECISION), "permission prompt")],
        300,
        WorkerState.WAITING,
        "decision",
        "wants",
    ),
    "aider asks on a line": Story(
        [
            (4, Source.TEXT, Progress(Work.STREAMING)),
            (5, Source.TEXT, Wants(Want.QUESTION, "(Y)es/(N)o/(D)on't ask again")),
        ],
        6,
        WorkerState.WAITING,
        "question",
        "wants",
    ),
}


@every_row("name", REAL)
def test_what_real_ones_do(name: str) -> None:
    told = REAL[name]
    status = look(told.rows, told.now, start_s=told.start_s)
    assert (status.state, status.detail, status.rule) == (told.state, told.detail, told.rule)


RULE_BY_RULE = {
    "an exit ends everything": Story(
        [READY, (2, Source.EXIT, Exited(0))], 2, WorkerState.COMPLETED, "", "exit-zero"
    ),
    "gone without a record": Story(
        [READY, (2, Source.CLOCK, Vanished("no server"))], 3, WorkerState.LOST, "", "vanished"
    ),
    "gone and found again": Story(
        [READY, (2, Source.CLOCK, Vanished("no server")), (3, Source.PROTOCOL, Progress(Work.TOOL))],
        4,
        WorkerState.RUNNING,
        "tool",
        "progress",
    ),
    "its machine is not reached, whatever its screen showed": Story(
        [READY, (2, Source.CLOCK, Unreached("no route")), (3, Source.STABILITY, Idle())],
        4,
        WorkerState.STALLED,
        "unreachable",
        "unreachable",
    ),
    "its machine is reached again": Story(
        [
            READY,
            (2, Source.PROTOCOL, Progress(Work.TOOL)),
            (3, Source.CLOCK, Unreached("no route")),
            (4, Source.CLOCK, Unreached("", over=True)),
        ],
        5,
        WorkerState.RUNNING,
        "tool",
        "progress",
    ),
    "stopped, whatever it said": Story(
        [
            (2, Source.PROTOCOL, Wants(Want.DECISION, request="1")),
            (3, Source.CHILDREN, Obstructed(Obstacle.STOPPED)),
        ],
        4,
        WorkerState.BLOCKED,
        "stopped",
        "stopped",
    ),
    "starting": Story([], 5, WorkerState.STARTING, "", "starting"),
    "starting, and its screen is still": Story(
        [(2, Source.STABILITY, Idle(2.0))], 12, WorkerState.STARTING, "", "starting"
    ),
    "not started in time": Story([], START_S + 1, WorkerState.STALLED, "", "starting"),
    "the start goes on after a dialog": Story(
        [
            (20, Source.SCREEN, Wants(Want.TRUST)),
            (28, Source.STABILITY, THINKS),
            (29, Source.STABILITY, THINKS),
        ],
        START_S + 1,
        WorkerState.STARTING,
        "",
        "starting",
    ),
    "ready, and nothing else yet": Story([READY], 10, WorkerState.RUNNING, "thinking", "progress"),
    "its own word that it works": Story(
        [(2, Source.ESCAPE, THINKS)], 50, WorkerState.RUNNING, "thinking", "working"
    ),
    "a command below it says at what": Story(
        [(2, Source.ESCAPE, THINKS), (3, Source.CHILDREN, Working(Work.TOOL))],
        4,
        WorkerState.RUNNING,
        "tool",
        "working",
    ),
    "a command that takes long is work": Story(
        [(2, Source.ESCAPE, THINKS), (3, Source.CHILDREN, Working(Work.TOOL))],
        3600,
        WorkerState.RUNNING,
        "tool",
        "working",
    ),
    "a command that ended long ago is not": Story(
        [(2, Source.ESCAPE, THINKS), (3, Source.CHILDREN, Working(Work.TOOL)), (9, Source.CHILDREN, Idle())],
        3 + QUIET_S + 1,
        WorkerState.STALLED,
        "thinking",
        "quiet",
    ),
    "a moving screen is life": Story(
        [READY] + [(at, Source.STABILITY, Working(Work.STREAMING)) for at in (2, 60, 120)],
        150,
        WorkerState.RUNNING,
        "streaming",
        "working",
    ),
    "idle at its first prompt, at once": Story(
        [(2, Source.TITLE, Idle(), "◇ Ready")], 2, WorkerState.WAITING, "prompt", "idle"
    ),
    "between two steps": Story(
        [(2, Source.ESCAPE, THINKS), (5, Source.ESCAPE, Idle())],
        5 + HOLD_S - 0.1,
        WorkerState.RUNNING,
        "thinking",
        "hold",
    ),
    "after its work": Story(
        [(2, Source.ESCAPE, THINKS), (5, Source.ESCAPE, Idle())],
        5 + HOLD_S,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "a still screen, not long enough": Story(
        [READY, (2, Source.STABILITY, Working(Work.STREAMING)), (7, Source.STABILITY, Idle(5.0))],
        5 + STABLE_S + HOLD_S - 0.1,
        WorkerState.RUNNING,
        "thinking",
        "hold",
    ),
    "a still screen, long enough": Story(
        [READY, (2, Source.STABILITY, Working(Work.STREAMING)), (7, Source.STABILITY, Idle(5.0))],
        5 + STABLE_S + HOLD_S,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "a still screen while the provider is asked": Story(
        [READY, (2, Source.SOCKET, IN_FLIGHT), (7, Source.STABILITY, Idle(5.0))],
        30,
        WorkerState.RUNNING,
        "network-wait",
        "working",
    ),
    "a shell at its prompt": Story(
        [(1, Source.SYSCALL, Wants(Want.PROMPT))], 2, WorkerState.WAITING, "prompt", "idle"
    ),
    "the end of a turn of a program that stays": Story(
        [(1, Source.PROTOCOL, Progress(Work.STREAMING)), (2, Source.PROTOCOL, Result(ok=True))],
        2 + HOLD_S,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "a retry that brought output is over": Story(
        [(1, Source.PROTOCOL, Retrying(1, 5, F.PROVIDER)), (4, Source.PROTOCOL, Progress(Work.STREAMING))],
        5,
        WorkerState.RUNNING,
        "streaming",
        "progress",
    ),
    "a retry that its user gave up is over": Story(
        [(1, Source.SCREEN, Retrying(1, 5, F.PROVIDER)), (4, Source.ESCAPE, Idle())],
        5,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "a still screen does not end a retry": Story(
        [(1, Source.SCREEN, Retrying(1, 5, F.PROVIDER)), (4, Source.STABILITY, Idle(2.0))],
        20,
        WorkerState.RUNNING,
        "retrying",
        "retrying",
    ),
    "a retry that never came": Story(
        [(1, Source.PROTOCOL, Retrying(1, 5, F.PROVIDER, next_at=11))],
        11 + QUIET_S + 1,
        WorkerState.STALLED,
        "thinking",
        "quiet",
    ),
    "twenty requests are no storm": Story(
        [READY] + [(2.0 + at, Source.SOCKET, Requested()) for at in range(STORM_REQUESTS)],
        25,
        WorkerState.RUNNING,
        "thinking",
        "progress",
    ),
    "many requests with output are no storm": Story(
        [READY]
        + [(2.0 + at, Source.SOCKET, Requested()) for at in range(15)]
        + [(18, Source.PROTOCOL, ToolFailed("sh", 1))]
        + [(20.0 + at, Source.SOCKET, Requested()) for at in range(15)],
        40,
        WorkerState.RUNNING,
        "thinking",
        "progress",
    ),
    "a storm that is over": Story(
        [READY] + [(2.0, Source.SOCKET, Requested())] * (STORM_REQUESTS + 1),
        2 + STORM_S + 1,
        WorkerState.RUNNING,
        "thinking",
        "progress",
    ),
    "requests without an answer, one after the other": Story(
        [READY] + [(2.0 + 60 * at, Source.SOCKET, Requested()) for at in range(3)],
        2 + PROVIDER_QUIET_S + 1,
        WorkerState.STALLED,
        "network-wait",
        "silent-provider",
    ),
    "a provider that answered": Story(
        [READY, (2, Source.SOCKET, IN_FLIGHT), (100, Source.SOCKET, Progress(Work.STREAMING))],
        150,
        WorkerState.RUNNING,
        "streaming",
        "progress",
    ),
    "a tool runs, the provider has nothing to say": Story(
        [READY, (2, Source.SOCKET, IN_FLIGHT), (3, Source.CHILDREN, Working(Work.TOOL))],
        500,
        WorkerState.RUNNING,
        "tool",
        "working",
    ),
    "a file that was forgotten": Story(
        [(1, Source.FILE, THINKS)], 130, WorkerState.STALLED, "thinking", "quiet"
    ),
    "an error by itself changes nothing": Story(
        [READY, (2, Source.TEXT, Trouble(F.PROVIDER, 500))], 3, WorkerState.RUNNING, "thinking", "progress"
    ),
    "a line program computes, and its screen is still": Story(
        [
            (2, Source.SYSCALL, Wants(Want.PROMPT), "sh waits for the terminal"),
            (9, Source.SYSCALL, Unread()),
            (9, Source.STABILITY, Progress(Work.STREAMING)),
            (15, Source.STABILITY, Idle(since=9)),
        ],
        20,
        WorkerState.RUNNING,
        "thinking",
        "progress",
    ),
    "the same for so long that nobody knows what it does": Story(
        [
            (2, Source.SYSCALL, Wants(Want.PROMPT)),
            (9, Source.SYSCALL, Unread()),
            (9, Source.STABILITY, Progress(Work.STREAMING)),
            (15, Source.STABILITY, Idle(since=9)),
        ],
        9 + QUIET_S + 1,
        WorkerState.STALLED,
        "thinking",
        "quiet",
    ),
    "the same, and then it reads its terminal": Story(
        [
            (9, Source.SYSCALL, Unread()),
            (15, Source.STABILITY, Idle(since=9)),
            (16, Source.SYSCALL, Wants(Want.PROMPT)),
        ],
        20,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "a still screen of one that cannot be proven not to read": Story(
        [
            (2, Source.SYSCALL, Wants(Want.PROMPT)),
            (9, Source.SYSCALL, Idle()),
            (9, Source.STABILITY, Progress(Work.STREAMING)),
            (15, Source.STABILITY, Idle(since=9)),
        ],
        20,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "what looks like a question, and nobody reads the answer": Story(
        [READY, (9, Source.SYSCALL, Unread()), (10, Source.SCREEN, Wants(Want.DECISION), "go on? [y/N]")],
        20,
        WorkerState.RUNNING,
        "thinking",
        "progress",
    ),
    "it says that it rests; what it shows is no question when nobody reads the answer": Story(
        [
            READY,
            (8, Source.ESCAPE, Idle()),
            (9, Source.SYSCALL, Unread()),
            (10, Source.SCREEN, Wants(Want.DECISION), "go on? [y/N]"),
        ],
        20,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "its own word stands against the proof": Story(
        [(8, Source.ESCAPE, Wants(Want.DECISION)), (9, Source.SYSCALL, Unread())],
        20,
        WorkerState.WAITING,
        "decision",
        "wants",
    ),
    "a screen that has not changed yet since a text was submitted is no wait for another": Story(
        [
            (2, Source.SCREEN, Wants(Want.PROMPT)),
            (30, Source.SCREEN, Answered("typed")),
            (30.5, Source.SCREEN, Wants(Want.PROMPT)),
        ],
        34,
        WorkerState.RUNNING,
        "thinking",
        "hold",
    ),
    "one that still shows it a while later waits again": Story(
        [
            (2, Source.SCREEN, Wants(Want.PROMPT)),
            (30, Source.SCREEN, Answered("typed")),
            (30.5, Source.SCREEN, Wants(Want.PROMPT)),
        ],
        36,
        WorkerState.WAITING,
        "prompt",
        "idle",
    ),
    "an answer is progress": Story(
        [(2, Source.PROTOCOL, Wants(Want.DECISION, request="1")), (300, Source.PROTOCOL, Answered("1"))],
        310,
        WorkerState.RUNNING,
        "thinking",
        "progress",
    ),
}


@every_row("name", RULE_BY_RULE)
def test_rule_by_rule(name: str) -> None:
    told = RULE_BY_RULE[name]
    status = look(told.rows, told.now, start_s=told.start_s)
    assert (status.state, status.detail, status.rule) == (told.state, told.detail, told.rule)


def test_a_retry_shows_attempt_cause_and_next_try() -> None:
    status = look([(1, Source.PROTOCOL, Retrying(2, 10, F.RATE_LIMIT, 429, next_at=61))], 31)
    assert status.about == "attempt 2/10, rate-limit HTTP 429, next in 30 s"
    assert status.failure is F.RATE_LIMIT
    bare = look([(1, Source.SCREEN, Retrying(3, None, None))], 31)
    assert bare.about == "attempt 3, cause not told"


def test_attempts_are_counted_in_one_source_and_a_screen_shows_one_many_times() -> None:
    claim = Retrying(1, 5, F.AUTH, 401)
    screen = look([(at, Source.SCREEN, claim) for at in (1, 2, 3)], 4)
    assert len(screen.evidence) == 1
    events = look([(at, Source.PROTOCOL, claim) for at in (1, 2)], 4)
    assert [item.at for item in events.evidence] == [2, 1]
    both = look([(1, Source.PROTOCOL, claim), (1.1, Source.TEXT, claim)], 4)
    assert len(both.evidence) == 1


def test_attempts_that_failed_otherwise_or_before_output_do_not_count() -> None:
    rows: list[Row] = [
        (1, Source.PROTOCOL, Retrying(1, 5, F.AUTH, 401)),
        (2, Source.PROTOCOL, Progress(Work.STREAMING)),
        (3, Source.PROTOCOL, Retrying(1, 5, F.PROVIDER, 500)),
        (4, Source.PROTOCOL, Retrying(2, 5, F.AUTH, 401)),
    ]
    assert [item.at for item in look(rows, 5).evidence] == [4]


def test_a_stall_tells_how_long_ago_something_was_sent_and_received() -> None:
    rows: list[Row] = [(10, Source.PROTOCOL, Progress(Work.STREAMING)), (20, Source.SOCKET, IN_FLIGHT)]
    assert look(rows, 220).about == "request sent 200 s ago, no answer; last received 210 s ago"
    assert look(rows[1:], 220).about == "request sent 200 s ago, no answer; last received never"


def test_a_contradiction_is_reported_and_the_fresher_proof_decides() -> None:
    rows: list[Row] = [(2, Source.ESCAPE, THINKS), (30, Source.TTY, Wants(Want.PASSWORD))]
    status = look(rows, 31)
    assert (status.state, status.detail, status.rule) == (WorkerState.WAITING, "password", "proof")
    assert status.contradictions == ("escape says running (thinking), tty says waiting (password)",)


def test_a_weaker_word_that_contradicts_is_reported_and_overruled() -> None:
    status = look([(2, Source.ESCAPE, THINKS), (3, Source.SCREEN, Wants(Want.DECISION))], 4)
    assert status.state is WorkerState.RUNNING
    assert status.contradictions == ("screen says waiting (decision), escape says running (thinking)",)


def test_two_different_questions_contradict_each_other() -> None:
    status = look([(2, Source.ESCAPE, Wants(Want.DECISION)), (3, Source.TTY, Wants(Want.PASSWORD))], 4)
    assert status.detail == "decision"
    assert status.contradictions == ("tty says waiting (password), escape says waiting (decision)",)


def test_an_obstacle_and_an_idle_title_contradict() -> None:
    rows: list[Row] = [
        (1, Source.TITLE, Idle()),
        (2, Source.CHILDREN, Obstructed(Obstacle.LOCK, "held by pid 7")),
    ]
    status = look(rows, 4)
    assert (status.state, status.about) == (WorkerState.BLOCKED, "held by pid 7")
    assert status.contradictions == ("title says waiting (prompt), children says blocked (lock)",)
    overruled = look([(1, Source.ESCAPE, Idle()), *rows[1:]], 4)
    assert overruled.contradictions == ("children says blocked (lock), escape says waiting (prompt)",)


def test_noise_is_no_contradiction() -> None:
    rows: list[Row] = [
        (1, Source.ESCAPE, Wants(Want.DECISION)),
        (2, Source.SOCKET, IN_FLIGHT),
        (3, Source.STABILITY, THINKS),
    ]
    assert look(rows, 4).contradictions == ()


def test_a_failed_turn_is_told_while_it_waits() -> None:
    rows: list[Row] = [READY, (2, Source.PROTOCOL, Result(ok=False, failure=F.AUTH))]
    assert look(rows, 20).about == "its last turn failed: auth"


def test_the_blocked_path_comes_with_rule_and_grant() -> None:
    status = look([(at, Source.DENIAL, refused(DB)) for at in (1, 2, 3)], 4)
    assert status.about == f"{DB}: create refused with EROFS, rule the home is read-only, grant --write {DB}"
    assert status.since == 1


def test_the_cli_s_record_tells_what_its_exit_code_is_worth() -> None:
    items = story(READY, (2, Source.EXIT, Exited(0)))
    doubtful = classify(
        items, 3.0, started_at=0.0, limits=WorkerLimits(), exits=ExitRules(zero_means_success=False)
    )
    assert doubtful.flags == {"unverified"}
    assert (doubtful.since, doubtful.progress_at) == (2, 1)


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {name for name, _ in RULES} - {"exit"} <= set(NAMES)


HEADLESS = WorkerLimits(quiet_s=5.0, provider_quiet_s=5.0, one_turn=True)


def of_a_run(rows: list[Row], now: float) -> WorkerStatus:
    """Of a run of one prompt, with small bounds."""
    return classify(story((0.1, Source.PROTOCOL, Ready()), *rows), now, started_at=0.0, limits=HEADLESS)


def test_a_result_of_a_run_of_one_prompt_is_no_wait_for_the_next() -> None:
    rows: list[Row] = [
        (1, Source.PROTOCOL, Progress(Work.STREAMING)),
        (2, Source.PROTOCOL, Result(ok=True)),
    ]
    assert of_a_run(rows, 6.5).state is WorkerState.RUNNING
    assert of_a_run(rows, 7.5).state is WorkerState.STALLED


def test_how_long_a_worker_may_be_quiet_is_a_limit() -> None:
    rows: list[Row] = [(1, Source.PROTOCOL, THINKS)]
    assert of_a_run(rows, 5.5).state is WorkerState.RUNNING
    assert of_a_run(rows, 6.5).state is WorkerState.STALLED


def test_an_attempt_without_a_cause_has_the_trouble_that_was_told() -> None:
    told: list[Row] = [(0.5, Source.DENIAL, Trouble(F.NETWORK), "no such name")]
    tried: list[Row] = [(2, Source.PROTOCOL, Retrying(1, 10, None))]
    assert of_a_run([*told, *tried], 3).failure is F.NETWORK
    assert of_a_run(tried, 3).failure is None
    assert of_a_run([*told, (1, Source.PROTOCOL, Progress(Work.STREAMING)), *tried], 3).failure is None
    assert of_a_run([*told, (2, Source.PROTOCOL, Retrying(1, 10, None, 529))], 3).failure is None


def test_a_quiet_worker_whose_provider_has_no_name_waits_for_the_network() -> None:
    status = of_a_run([(0.5, Source.DENIAL, Trouble(F.NETWORK), "no such name")], 9)
    assert (status.state, status.detail) == (WorkerState.STALLED, Work.NETWORK)
    assert "no such name" in status.about


def test_a_quiet_worker_whose_connection_was_refused_is_blocked() -> None:
    rows: list[Row] = [
        (0.5, Source.DENIAL, refused("127.0.0.1:9", access="connect")),
        (1, Source.PROTOCOL, THINKS),
    ]
    assert of_a_run(rows, 3).state is WorkerState.RUNNING
    status = of_a_run(rows, 9)
    assert (status.state, status.detail) == (WorkerState.BLOCKED, Obstacle.SANDBOX_NETWORK)


def test_a_turn_that_fails_and_begins_again_for_ever_is_a_loop() -> None:
    turn: list[Row] = [
        (1, Source.PROTOCOL, THINKS),
        (2, Source.PROTOCOL, Progress(Work.STREAMING)),
        (3, Source.PROTOCOL, Retrying(1, None, F.PROVIDER)),
    ]
    many = turn * (STORM_REQUESTS + 1)
    assert of_a_run(many, 4).rule == STORM
    assert of_a_run(turn * STORM_REQUESTS, 4).rule != STORM
    assert (
        of_a_run([*turn, (3, Source.PROTOCOL, Progress(Work.TOOL)), *turn * STORM_REQUESTS], 4).rule != STORM
    )
    assert of_a_run(many, 4 + STORM_S).rule != STORM


def test_that_nobody_reads_its_terminal_is_shown_as_evidence() -> None:
    rows: list[Row] = [
        (2, Source.SYSCALL, Wants(Want.PROMPT)),
        (9, Source.STABILITY, Progress(Work.STREAMING)),
        (14, Source.SYSCALL, Unread(), "nobody reads the terminal"),
        (15, Source.STABILITY, Idle(since=9)),
    ]
    assert "nobody reads the terminal" in [item.seen for item in look(rows, 20).evidence]


def act(rows: list[Row], now: float, limits: WorkerLimits = WorkerLimits()) -> WorkerStop | None:  # noqa: B008 - a value
    status = classify(story(*rows), now, started_at=0.0, limits=limits)
    return decide_end(status, now, started_at=0.0, limits=limits)


def tries(*attempts: tuple[F | None, int | None]) -> list[Row]:
    return [(1.0 + n, Source.PROTOCOL, Retrying(n, 10, *cause)) for n, cause in enumerate(attempts, 1)]


@every_row(
    ("cause", "expected"),
    [
        ((F.AUTH, 401), F.AUTH),
        ((F.AUTH, 403), F.AUTH),
        ((None, 401), F.AUTH),
        ((None, 403), F.AUTH),
        ((None, 404), F.MODEL),
        ((F.MODEL, 404), F.MODEL),
        ((F.QUOTA, 429), F.QUOTA),
        ((F.AUTH, None), F.AUTH),
        ((F.PROVIDER, 404), F.PROVIDER),
    ],
)
def test_a_hopeless_retry_is_ended_at_the_second_identical_attempt(
    cause: tuple[F | None, int | None], expected: F
) -> None:
    assert act(tries(cause), 3) is None
    end = act(tries(cause, cause), 4)
    assert end is not None
    assert end.failure is expected


@pytest.mark.parametrize("cause", [(F.RATE_LIMIT, 429), (F.PROVIDER, 500), (F.NETWORK, None), (None, None)])
def test_what_may_get_better_is_left_to_try(cause: tuple[F | None, int | None]) -> None:
    assert act(tries(*[cause] * 9), 12) is None


def test_attempts_that_differ_are_not_identical() -> None:
    assert act(tries((F.PROVIDER, 500), (F.AUTH, 401)), 4) is None
    assert act(tries((F.AUTH, 401), (F.AUTH, 403)), 4) is None


def test_output_between_two_attempts_is_hope() -> None:
    first, second = tries((F.AUTH, 401), (F.AUTH, 401))
    assert act([first, (2.5, Source.PROTOCOL, Progress(Work.STREAMING)), second], 4) is None


def test_a_storm_of_requests_is_ended() -> None:
    rows: list[Row] = [(1.0, Source.SOCKET, Requested())] * (STORM_REQUESTS + 1)
    end = act(rows, 10)
    assert end is not None
    assert end.failure is F.PROVIDER
    assert end.why.startswith("retry loop")


def test_the_end_gives_the_verdict_its_words() -> None:
    end = act(tries((F.AUTH, 401), (F.AUTH, 401)), 4)
    assert end is not None
    items = story(*tries((F.AUTH, 401)), (5, Source.EXIT, Exited(None, 15, end.failure), end.why))
    status = classify(items, 6, started_at=0.0, limits=WorkerLimits())
    assert (status.state, status.failure, status.about) == (WorkerState.FAILED, F.AUTH, end.why)


def test_the_wall_limit_ends_whatever_it_does() -> None:
    rows: list[Row] = [(99.0, Source.PROTOCOL, Wants(Want.DECISION, request="1"))]
    assert act(rows, 100, WorkerLimits(wall_s=100)) is None
    end = act(rows, 101, WorkerLimits(wall_s=100))
    assert end is not None
    assert end.failure is F.TIMEOUT


def test_the_idle_limit_counts_from_the_last_sign_of_work() -> None:
    rows: list[Row] = [(10.0, Source.PROTOCOL, Progress(Work.TOOL))]
    assert act(rows, 70, WorkerLimits(idle_s=60)) is None
    end = act(rows, 71, WorkerLimits(idle_s=60))
    assert end is not None
    assert end.failure is F.TIMEOUT


def test_one_that_waits_for_its_owner_is_not_idle() -> None:
    assert act([(1.0, Source.ESCAPE, Wants(Want.DECISION))], 1e6, WorkerLimits(idle_s=60)) is None


def test_a_stall_is_advice_and_ends_nothing() -> None:
    assert act([(1.0, Source.PROTOCOL, Ready())], 1e6) is None
    assert act([(1.0, Source.SOCKET, Working(Work.NETWORK))], 1e6) is None


def test_one_whose_machine_is_not_reached_is_not_ended_for_being_idle() -> None:
    rows: list[Row] = [(1.0, Source.PROTOCOL, Progress(Work.TOOL))]
    unreached: Row = (2.0, Source.CLOCK, Unreached("no route"))
    assert act(rows, 100.0, WorkerLimits(idle_s=10)) is not None
    assert act([*rows, unreached], 100.0, WorkerLimits(idle_s=10)) is None


def test_nothing_is_done_about_one_that_ended() -> None:
    assert act([(1.0, Source.EXIT, Exited(0))], 1e6, WorkerLimits(wall_s=1, idle_s=1)) is None


def test_every_rule_is_explained_and_no_other() -> None:
    assert set(REASONS) == set(NAMES)


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
    status = WorkerStatus(WorkerState.COMPLETED, flags=frozenset({"with-denials", "unverified"}), since=1)
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
    (Unread(), "does not read its terminal: it waits for no input"),
    (Answered("1"), "answered"),
    (Retrying(2, 5, F.AUTH, 401), "tries again, attempt 2 failed (auth HTTP 401)"),
    (Retrying(2, 5, None), "tries again, attempt 2 failed"),
    (refused("/x"), "/x: create refused with EROFS, rule the home is read-only, grant --write /x"),
    (Obstructed(Obstacle.LOCK, "held by pid 7"), "held up by lock: held by pid 7"),
    (Obstructed(Obstacle.STOPPED), "held up by stopped"),
    (Requested(), "sent a request to its provider"),
    (Used(TokenUsage(2, 3)), "has used 5 tokens"),
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
    (Unreached("no route"), "not reached: no route"),
    (Unreached("", over=True), "reached again"),
]


@every_row(("claim", "words"), CLAIMS)
def test_every_claim_has_words(claim: Claim, words: str) -> None:
    assert claim_words(claim) == words


def test_a_run_whose_turn_failed_and_that_does_not_end_says_why() -> None:
    rows: list[Row] = [
        (1, Source.PROTOCOL, Ready()),
        (2, Source.PROTOCOL, Result(False, F.NETWORK, "self signed certificate")),
    ]
    limits = WorkerLimits(one_turn=True)
    status = classify(story(*rows), 9.0, started_at=0.0, limits=limits)
    assert (status.state, status.failure) == (WorkerState.RUNNING, F.NETWORK)
    assert "self signed certificate" in status.about


PROMPT = Wants(Want.PROMPT)


@every_row(
    ("away", "state"),
    [
        ([Unread()], WorkerState.WAITING),  # at that look it was between two asks
        ([Idle()], WorkerState.WAITING),
        ([Unread(), Unread(), Unread()], WorkerState.WAITING),
        ([Unread()] * 7, WorkerState.RUNNING),  # it went on without a word
    ],
)
def test_a_program_that_asks_for_its_input_in_turns_waits_all_the_time(
    away: list[Claim], state: WorkerState
) -> None:
    rows: list[Row] = [(at, Source.SYSCALL, PROMPT) for at in (10, 11, 12)]
    rows += [(12.5 + number / 2, Source.SYSCALL, claim) for number, claim in enumerate(away)]
    assert look(rows, rows[-1][0]).state is state
    back = rows[-1][0] + 0.5
    again = look([*rows, (back, Source.SYSCALL, PROMPT)], back)
    assert (again.since == 10) is (state is WorkerState.WAITING)


def test_a_title_that_still_says_ready_after_an_answer_is_not_believed() -> None:
    rows: list[Row] = [(2, Source.TITLE, Idle(), "ready"), (9, Source.SCREEN, Answered("typed"))]
    assert look(rows[:1], 9).state is WorkerState.WAITING
    assert look(rows, 9.1).state is WorkerState.RUNNING
    assert look(rows, 12.5).state is WorkerState.WAITING
    assert look(rows, 12.5).since == 9


@every_row("went_on", [(Source.SCREEN, Answered("typed")), (Source.PROTOCOL, Progress(Work.STREAMING))])
def test_one_that_was_answered_or_seen_to_work_does_not_wait_any_more(went_on: tuple[Source, Claim]) -> None:
    rows: list[Row] = [(10, Source.SYSCALL, PROMPT), (20, *went_on), (20.5, Source.SYSCALL, Unread())]
    assert look(rows, 20.5).state is WorkerState.RUNNING


def test_a_screen_that_says_that_a_tool_runs_adds_that_to_a_program_that_only_says_that_it_works() -> None:
    rows: list[Row] = [(2, Source.ESCAPE, THINKS), (3, Source.SCREEN, Working(Work.TOOL))]
    assert look([*rows, (4, Source.TITLE, THINKS)], 5).detail == Work.TOOL
    assert look([*rows, (4, Source.SCREEN, THINKS)], 5).detail == Work.THINKING


def test_a_command_that_began_after_the_word_that_it_thinks_is_its_tool() -> None:
    """OpenCode tells of a tool when that has ended."""
    runs: list[Row] = [(at, Source.CHILDREN, Working(Work.TOOL)) for at in (3, 3.5, 4)]
    assert look([(2, Source.PROTOCOL, THINKS), *runs], 4).detail == Work.TOOL
    assert look([(2, Source.PROTOCOL, THINKS), runs[0]], 3.5).detail == Work.THINKING, "a helper of its own"
    assert look([*runs, (4.5, Source.PROTOCOL, THINKS), (5, *runs[0][1:])], 6).detail == Work.THINKING


def test_a_worker_whose_machine_is_away_is_not_ended_by_its_limits_until_it_is_back() -> None:
    limits = WorkerLimits(wall_s=10.0, idle_s=5.0)
    away: list[Row] = [READY, (2, Source.CLOCK, Unreached("no route"))]
    assert act(away, 100.0, limits) is None
    back = act([*away, (50, Source.CLOCK, Unreached("", over=True))], 100.0, limits)
    assert back is not None
    assert back.failure is F.TIMEOUT


def test_a_gateway_that_answers_for_a_provider_whose_name_is_not_found_is_not_the_provider() -> None:
    probed: Row = (0.5, Source.DENIAL, Trouble(F.NETWORK), "its provider's name is not found")
    tries: Row = (5, Source.TEXT, Retrying(1, None, F.PROVIDER, 502))
    assert look([probed, READY, tries], 6).failure is F.NETWORK
    assert look([READY, tries], 6).failure is F.PROVIDER
    answered: Row = (2, Source.PROTOCOL, Progress(Work.STREAMING))
    assert look([probed, READY, answered, tries], 6).failure is F.PROVIDER, "it was reached since"
    shown: Row = (5, Source.SCREEN, Wants(Want.PROMPT, failure=F.PROVIDER))
    assert look([probed, READY, shown], 60).failure is F.NETWORK
    rows = [probed, (5, Source.PROTOCOL, Result(False, F.PROVIDER)), (6, Source.EXIT, Exited(1, None))]
    assert look(rows, 7).failure is F.NETWORK
