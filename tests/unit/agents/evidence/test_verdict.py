"""The verdict at the end: the endings that look like success first, then the rules in their order."""

from typing import NamedTuple

import pytest

from holdfast.agents.evidence.evidence import (
    Denied,
    Evidence,
    Exited,
    Foreseen,
    Idle,
    Obstacle,
    Obstructed,
    Progress,
    Ready,
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
from holdfast.agents.evidence.verdict import RULES, ExitRules, denial_words, http_failure, verdict
from tests.support.evidence import Row, refused, story
from tests.support.rows import every_row

TRUSTED = ExitRules()
ZERO_SAYS_LITTLE = ExitRules(zero_means_success=False)
GEMINI = ExitRules(codes={41: F.AUTH, 44: F.SANDBOX, 52: F.CONFIGURATION, 130: F.KILLED}, http_modulo=True)

READY: Row = (1, Source.PROTOCOL, Ready())
TEXT: Row = (5, Source.PROTOCOL, Progress(Work.STREAMING))
TOOL: Row = (4, Source.PROTOCOL, Progress(Work.TOOL))
DONE: Row = (8, Source.PROTOCOL, Result(ok=True))
ZERO: Row = (9, Source.EXIT, Exited(0))
ONE: Row = (9, Source.EXIT, Exited(1))


class Ending(NamedTuple):
    rows: list[Row]
    state: WorkerState
    what: F | frozenset[str]  # of a failed one the class, of a completed one the flags
    rule: str
    rules: ExitRules = TRUSTED


def flags(*names: str) -> frozenset[str]:
    return frozenset(names)


def check(ending: Ending) -> WorkerStatus:
    status = verdict(story(*ending.rows), ending.rules)
    what = status.failure if status.state is WorkerState.FAILED else status.flags
    assert (status.state, what, status.rule) == (ending.state, ending.what, f"exit-{ending.rule}")
    return status


LOOK_LIKE_SUCCESS = {
    "any provider failure, exit 0 (aider)": Ending(
        [
            (2, Source.TEXT, Progress(Work.STREAMING)),
            (3, Source.TEXT, Trouble(F.AUTH), "AuthenticationError"),
            ZERO,
        ],
        WorkerState.FAILED,
        F.AUTH,
        "trouble",
        ZERO_SAYS_LITTLE,
    ),
    "truncated answer accepted, exit 0 (aider)": Ending(
        [(2, Source.TEXT, Progress(Work.STREAMING)), ZERO],
        WorkerState.COMPLETED,
        flags("unverified"),
        "zero",
        ZERO_SAYS_LITTLE,
    ),
    "truncated answer accepted, exit 0 (gemini)": Ending(
        [
            READY,
            TEXT,
            (7, Source.TEXT, Trouble(F.PROVIDER), "stream ended without a finish reason"),
            DONE,
            ZERO,
        ],
        WorkerState.FAILED,
        F.PROVIDER,
        "result",
        GEMINI,
    ),
    "empty answer accepted, exit 0 (gemini)": Ending(
        [READY, DONE, ZERO], WorkerState.COMPLETED, flags("no-tools", "unverified"), "result", GEMINI
    ),
    "requested write refused, model says done (claude)": Ending(
        [
            READY,
            TOOL,
            (4, Source.PROTOCOL, ToolFailed("Write")),
            TEXT,
            (8, Source.PROTOCOL, Result(ok=True, refused=("Write",))),
            ZERO,
        ],
        WorkerState.FAILED,
        F.PERMISSION,
        "result",
    ),
    "requested write refused, model says done (opencode)": Ending(
        [READY, TOOL, (4, Source.TEXT, Trouble(F.PERMISSION), "auto-rejecting"), TEXT, DONE, ZERO],
        WorkerState.FAILED,
        F.PERMISSION,
        "result",
    ),
    "requested write refused, model says done (codex)": Ending(
        [READY, TOOL, (4, Source.PROTOCOL, ToolFailed("touch /etc/x", 1)), TEXT, DONE, ZERO],
        WorkerState.COMPLETED,
        flags("unverified"),
        "result",
    ),
    "tool never offered, the model answers in prose (gemini, qwen)": Ending(
        [READY, TEXT, DONE, ZERO], WorkerState.COMPLETED, flags("no-tools"), "result"
    ),
    "subtype success with is_error (claude)": Ending(
        [READY, (8, Source.PROTOCOL, Result(ok=False, http=401), "subtype=success is_error=true"), ZERO],
        WorkerState.FAILED,
        F.AUTH,
        "result",
    ),
    "provider failure reported as the end of a turn (copilot over ACP)": Ending(
        [READY, (6, Source.TEXT, Trouble(F.AUTH, 401), "HTTP 401"), DONE, ZERO],
        WorkerState.FAILED,
        F.AUTH,
        "result",
    ),
    "text typed into a start-up dialog, exit 0 (codex)": Ending(
        [(2, Source.SCREEN, Wants(Want.TRUST)), ZERO], WorkerState.FAILED, F.LAUNCH, "early"
    ),
    "end-of-life notice, exit 0 (kimi-cli)": Ending(
        [ZERO], WorkerState.FAILED, F.LAUNCH, "early", ZERO_SAYS_LITTLE
    ),
    "end-of-life notice taken for output, exit 0 (kimi-cli)": Ending(
        [(1, Source.TEXT, Progress(Work.STREAMING)), ZERO],
        WorkerState.COMPLETED,
        flags("unverified"),
        "zero",
        ZERO_SAYS_LITTLE,
    ),
    "leader exits, background work continues (cline, claude)": Ending(
        [READY, TOOL, TEXT, DONE, ZERO, (9.5, Source.CHILDREN, Working(Work.TOOL))],
        WorkerState.COMPLETED,
        flags("background"),
        "result",
    ),
}


LOOK_LIKE_SUCCESS |= {
    "a command that it did not wait for": Ending(
        [READY, TEXT, (8, Source.PROTOCOL, Result(ok=True, unfinished=("sleep 600",))), ZERO],
        WorkerState.COMPLETED,
        flags("unverified"),
        "result",
        ZERO_SAYS_LITTLE,
    ),
    "its own sandbox did not come up, and it says done": Ending(
        [
            READY,
            TOOL,
            (4, Source.PROTOCOL, ToolFailed("ls", 1)),
            (4, Source.PROTOCOL, Trouble(F.SANDBOX)),
            TEXT,
            DONE,
            ZERO,
        ],
        WorkerState.FAILED,
        F.SANDBOX,
        "result",
        ZERO_SAYS_LITTLE,
    ),
}


@every_row("name", LOOK_LIKE_SUCCESS)
def test_an_ending_that_looks_like_success_is_not_taken_for_it(name: str) -> None:
    ending = LOOK_LIKE_SUCCESS[name]
    check(ending)
    assert (ending.state, ending.what) != (WorkerState.COMPLETED, flags())


DENIAL: Row = (3, Source.DENIAL, refused("/home/u/.x"))

IN_ORDER = {
    # 1: our own doing
    "stopped by us": Ending(
        [READY, (9, Source.EXIT, Exited(None, 15, F.KILLED))], WorkerState.FAILED, F.KILLED, "ours"
    ),
    "at its time limit": Ending(
        [READY, (9, Source.EXIT, Exited(None, 9, F.TIMEOUT))], WorkerState.FAILED, F.TIMEOUT, "ours"
    ),
    "never started": Ending(
        [(0, Source.EXIT, Exited(None, None, F.LAUNCH))], WorkerState.FAILED, F.LAUNCH, "ours"
    ),
    "ended by policy": Ending(
        [READY, (9, Source.EXIT, Exited(1, None, F.QUOTA))], WorkerState.FAILED, F.QUOTA, "ours"
    ),
    "our own doing before its result": Ending(
        [READY, DONE, (9, Source.EXIT, Exited(0, None, F.KILLED))], WorkerState.FAILED, F.KILLED, "ours"
    ),
    # 2: a signal
    "a signal": Ending(
        [READY, DONE, (9, Source.EXIT, Exited(None, 11))], WorkerState.FAILED, F.CRASH, "signal"
    ),
    # 3: the result
    "success": Ending([READY, TOOL, TEXT, DONE, ZERO], WorkerState.COMPLETED, flags(), "result"),
    "success that came in after the exit": Ending(
        [READY, TOOL, TEXT, ZERO, DONE], WorkerState.COMPLETED, flags(), "result"
    ),
    "success with a refusal it found a way around": Ending(
        [
            READY,
            (2, Source.PROTOCOL, ToolFailed("Write")),
            TOOL,
            (8, Source.PROTOCOL, Result(ok=True, refused=("Write",))),
            ZERO,
        ],
        WorkerState.COMPLETED,
        flags("with-denials"),
        "result",
    ),
    "success with a refusal and no tool seen": Ending(
        [READY, TEXT, (8, Source.PROTOCOL, Result(ok=True, refused=("Bash",))), ZERO],
        WorkerState.FAILED,
        F.PERMISSION,
        "result",
    ),
    "success though the sandbox refused something": Ending(
        [READY, DENIAL, TOOL, TEXT, DONE, ZERO], WorkerState.COMPLETED, flags("with-denials"), "result"
    ),
    "success with an error exit": Ending(
        [READY, TOOL, DONE, ONE], WorkerState.COMPLETED, flags("unverified"), "result"
    ),
    "success with an error after it": Ending(
        [READY, TOOL, DONE, (8.5, Source.TEXT, Trouble(F.NETWORK)), ZERO],
        WorkerState.COMPLETED,
        flags("unverified"),
        "result",
    ),
    "success after an error that work made good": Ending(
        [READY, (2, Source.PROTOCOL, Retrying(1, 5, F.PROVIDER, 500)), TOOL, TEXT, DONE, ZERO],
        WorkerState.COMPLETED,
        flags(),
        "result",
    ),
    "a tool that failed before another": Ending(
        [READY, (2, Source.PROTOCOL, ToolFailed("make", 2)), TOOL, DONE, ZERO],
        WorkerState.COMPLETED,
        flags(),
        "result",
    ),
    "failure with its class": Ending(
        [READY, (8, Source.PROTOCOL, Result(ok=False, failure=F.CONTEXT, http=400)), ONE],
        WorkerState.FAILED,
        F.CONTEXT,
        "result",
    ),
    "failure whose class an earlier error tells": Ending(
        [READY, (7, Source.TEXT, Trouble(F.RATE_LIMIT)), (8, Source.PROTOCOL, Result(ok=False)), ONE],
        WorkerState.FAILED,
        F.RATE_LIMIT,
        "result",
    ),
    "failure whose class the exit code tells": Ending(
        [READY, (8, Source.PROTOCOL, Result(ok=False)), (9, Source.EXIT, Exited(41))],
        WorkerState.FAILED,
        F.AUTH,
        "result",
        GEMINI,
    ),
    "failure without a class": Ending(
        [READY, (8, Source.PROTOCOL, Result(ok=False)), ONE], WorkerState.FAILED, F.CRASH, "result"
    ),
    "no network, because the sandbox has none": Ending(
        [
            READY,
            (2, Source.CHILDREN, Obstructed(Obstacle.SANDBOX_NETWORK)),
            (8, Source.PROTOCOL, Result(ok=False, failure=F.NETWORK)),
            ONE,
        ],
        WorkerState.FAILED,
        F.SANDBOX,
        "result",
    ),
    # 4: words and codes
    "an error in words": Ending(
        [READY, (7, Source.TEXT, Trouble(F.MODEL, 404)), ONE], WorkerState.FAILED, F.MODEL, "trouble"
    ),
    "retries that ran out": Ending(
        [READY, (7, Source.TEXT, Retrying(3, 3, None, 429)), ONE], WorkerState.FAILED, F.RATE_LIMIT, "trouble"
    ),
    "the newest error that has a class": Ending(
        [READY, (6, Source.TEXT, Trouble(F.QUOTA)), (7, Source.SCREEN, Retrying(1, 3, None)), ONE],
        WorkerState.FAILED,
        F.QUOTA,
        "trouble",
    ),
    "an error that work made good": Ending(
        [READY, (2, Source.TEXT, Trouble(F.PROVIDER)), TEXT, ONE], WorkerState.FAILED, F.CRASH, "code"
    ),
    "an error about the sandbox, and the denial that tells more": Ending(
        [DENIAL, (4, Source.TEXT, Trouble(F.SANDBOX), "os error 30"), ONE],
        WorkerState.FAILED,
        F.SANDBOX,
        "trouble",
    ),
    "an error about the network, and a refused connection": Ending(
        [
            READY,
            (2, Source.DENIAL, refused("h:443", access="connect")),
            (4, Source.TEXT, Trouble(F.NETWORK)),
            ONE,
        ],
        WorkerState.FAILED,
        F.SANDBOX,
        "trouble",
    ),
    "a code that the record explains": Ending(
        [READY, (9, Source.EXIT, Exited(52))], WorkerState.FAILED, F.CONFIGURATION, "trouble", GEMINI
    ),
    "a code that the record explains, above 128": Ending(
        [READY, (9, Source.EXIT, Exited(130))], WorkerState.FAILED, F.KILLED, "trouble", GEMINI
    ),
    # 5: HTTP in the exit code
    "gemini 401": Ending([READY, (9, Source.EXIT, Exited(145))], WorkerState.FAILED, F.AUTH, "http", GEMINI),
    "gemini 400": Ending(
        [READY, (9, Source.EXIT, Exited(144))], WorkerState.FAILED, F.PROVIDER, "http", GEMINI
    ),
    "another's 145": Ending([READY, (9, Source.EXIT, Exited(145))], WorkerState.FAILED, F.CRASH, "code"),
    "gemini 129 is no HTTP error": Ending(
        [READY, (9, Source.EXIT, Exited(129))], WorkerState.FAILED, F.CRASH, "code", GEMINI
    ),
    # 6: denials
    "refused, then an error": Ending([READY, DENIAL, ONE], WorkerState.FAILED, F.SANDBOX, "denied"),
    "refused before it took part": Ending([DENIAL, ONE], WorkerState.FAILED, F.SANDBOX, "denied"),
    "refused, then no error": Ending(
        [READY, DENIAL, ZERO], WorkerState.COMPLETED, flags("with-denials"), "zero"
    ),
    "refused, then an exit 0 that says little": Ending(
        [READY, DENIAL, ZERO],
        WorkerState.COMPLETED,
        flags("unverified", "with-denials"),
        "zero",
        ZERO_SAYS_LITTLE,
    ),
    "refused, then an exit 0 before it took part": Ending(
        [DENIAL, ZERO], WorkerState.FAILED, F.SANDBOX, "early", ZERO_SAYS_LITTLE
    ),
    # 7 and 8: the exit code
    "exit 0 that says little": Ending(
        [READY, ZERO], WorkerState.COMPLETED, flags("unverified"), "zero", ZERO_SAYS_LITTLE
    ),
    "exit 0 that says much": Ending([READY, ZERO], WorkerState.COMPLETED, flags(), "zero"),
    "exit 0 of a command that says nothing": Ending([ZERO], WorkerState.COMPLETED, flags(), "zero"),
    "exit 0 in the middle of a question": Ending(
        [READY, (3, Source.SCREEN, Wants(Want.DECISION)), ZERO],
        WorkerState.COMPLETED,
        flags("unverified"),
        "zero",
    ),
    "an error before it took part": Ending([ONE], WorkerState.FAILED, F.LAUNCH, "early"),
    "any other error": Ending([READY, ONE], WorkerState.FAILED, F.CRASH, "code"),
    "no exit code": Ending([READY, (9, Source.EXIT, Exited(None))], WorkerState.LOST, flags(), "code"),
    "no exit code, before it took part": Ending(
        [(9, Source.EXIT, Exited(None))], WorkerState.LOST, flags(), "code"
    ),
}


@every_row("name", IN_ORDER)
def test_the_rules_in_their_order(name: str) -> None:
    check(IN_ORDER[name])


def test_a_denial_is_told_with_path_rule_and_grant() -> None:
    status = check(IN_ORDER["an error about the sandbox, and the denial that tells more"])
    assert status.about == (
        "/home/u/.x: create refused with EROFS, rule the home is read-only, grant --write /home/u/.x "
        "(6 s before the end)"
    )
    assert [item.source for item in status.evidence] == [Source.EXIT, Source.TEXT, Source.DENIAL]


def test_a_program_that_ended_over_a_denial_names_that_one() -> None:
    rows: list[Row] = [
        (3, Source.DENIAL, refused("/a", fatal=True)),
        (4, Source.DENIAL, refused("/b")),
        ONE,
    ]
    assert verdict(story(*rows), TRUSTED).about.startswith("/a:")


def test_a_sandbox_without_a_network_is_named_even_without_a_path() -> None:
    status = check(IN_ORDER["no network, because the sandbox has none"])
    assert status.about.startswith("the sandbox has no network")


def test_a_contradiction_with_the_result_is_reported() -> None:
    assert check(IN_ORDER["success with an error exit"]).contradictions == (
        "protocol says success, exit code is 1",
    )
    assert check(IN_ORDER["success with an error after it"]).contradictions == (
        "protocol says success, text says network",
    )
    assert check(IN_ORDER["our own doing before its result"]).contradictions == (
        "protocol says that its last turn succeeded",
    )
    truncated = check(LOOK_LIKE_SUCCESS["truncated answer accepted, exit 0 (gemini)"])
    assert truncated.contradictions == ("protocol says success, text says provider",)


CRASHED: Row = (
    8,
    Source.PROTOCOL,
    Result(ok=False, message="Unexpected server error"),
    "Unexpected server error",
)
DENIED: Row = (3, Source.DENIAL, refused("/a"))


@every_row(
    ("rows", "failure"),
    [
        ([DENIED, CRASHED, ONE], F.SANDBOX),
        ([TOOL, (4.5, Source.DENIAL, refused("/a")), CRASHED, ONE], F.SANDBOX),
        ([DENIED, TOOL, CRASHED, ONE], F.CRASH),  # it went on after it
        ([DENIED, TEXT, CRASHED, ONE], F.CRASH),
        ([DENIED, (8, Source.PROTOCOL, Result(ok=False, http=401), "401"), ONE], F.AUTH),
        ([DENIED, (4, Source.TEXT, Trouble(F.QUOTA), "quota"), CRASHED, ONE], F.QUOTA),
        ([CRASHED, ONE], F.CRASH),
    ],
)
def test_a_failure_without_a_cause_is_the_sandboxs_when_nothing_came_after_a_denial(
    rows: list[Row], failure: F
) -> None:
    status = verdict(story(*rows), TRUSTED)
    assert status.failure is failure
    assert status.about.startswith("/a: create refused") == (failure is F.SANDBOX)


def test_what_the_leader_left_behind_may_end_too() -> None:
    rows: list[Row] = [
        READY,
        ZERO,
        (9.5, Source.CHILDREN, Working(Work.TOOL)),
        (9.9, Source.CHILDREN, Idle()),
    ]
    assert verdict(story(*rows), TRUSTED).flags == frozenset()


KILLED: Row = (9, Source.EXIT, Exited(None, 9))


@every_row(
    ("rows", "failure", "words"),
    [
        ([READY, KILLED], F.CRASH, "signal 9, which we did not send"),
        ([READY, (9, Source.EXIT, Exited(None, 9, out_of_memory=True))], F.MEMORY, "no memory was left"),
        (
            [READY, (8, Source.TEXT, Trouble(F.MEMORY)), (9, Source.EXIT, Exited(None, 6))],
            F.MEMORY,
            "signal 6",
        ),
        ([READY, (8, Source.TEXT, Trouble(F.STATE)), ONE], F.STATE, ""),
        ([DENIAL, READY, (8, Source.TEXT, Trouble(F.STATE)), ONE], F.SANDBOX, "/home/u/.x"),
    ],
)
def test_want_of_memory_and_an_unusable_state_are_named(rows: list[Row], failure: F, words: str) -> None:
    status = verdict(story(*rows), ZERO_SAYS_LITTLE)
    assert (status.state, status.failure) == (WorkerState.FAILED, failure)
    assert words in status.about


def test_a_command_that_ran_until_the_end_is_named_and_a_short_helper_is_not() -> None:
    def runs(name: str, *times: float) -> list[Evidence]:
        return [Evidence(Source.CHILDREN, at, Working(Work.TOOL), f"runs {name}") for at in times]

    end = Evidence(Source.EXIT, 9.0, Exited(None, 9), "killed")
    assert "it still ran sleep, which ended with it" in verdict([*runs("sleep", 5, 8.7), end], TRUSTED).about
    assert "git" not in verdict([*runs("sleep", 5, 8), *runs("git", 8.7), end], TRUSTED).about
    among = verdict([*runs("bash, tail, sleep", 5, 7), *runs("tail, git", 8.7), end], TRUSTED).about
    assert "it still ran tail, which" in among, "what was started and ended beside it is not"
    gone = Evidence(Source.CHILDREN, 8.8, Idle())
    assert "sleep" not in verdict([*runs("sleep", 5, 8.7), gone, end], TRUSTED).about


def test_success_while_a_command_was_still_at_work_is_not_verified() -> None:
    looks = [Evidence(Source.CHILDREN, at, Working(Work.TOOL), "runs make") for at in (5, 8.7)]
    end = [Evidence(Source.PROTOCOL, 8.8, Result(ok=True)), Evidence(Source.EXIT, 9.0, Exited(0, None))]
    assert "unverified" in verdict([*looks, *end], TRUSTED).flags


def test_what_ended_before_it_took_part_is_told_with_its_last_words() -> None:
    words = "exit code 1: Error loading config.toml:"
    status = verdict([Evidence(Source.EXIT, 1.0, Exited(1, None), words)], TRUSTED)
    assert (status.failure, status.about) == (F.LAUNCH, f"it ended before it took part, {words}")


def test_a_failed_end_may_leave_something_behind() -> None:
    rows: list[Row] = [READY, ONE, (9.5, Source.CHILDREN, Working(Work.TOOL))]
    assert verdict(story(*rows), TRUSTED).flags == {"background"}


def test_what_was_only_foreseen_is_not_why_it_failed() -> None:
    foreseen = Foreseen("create", "/h/d.db", "EROFS", "home")
    rows: list[Row] = [(0.1, Source.DENIAL, foreseen), READY, ONE]
    assert verdict(story(*rows), TRUSTED).failure is F.CRASH
    rows[0] = (0.1, Source.DENIAL, refused("/h/d.db"))
    assert verdict(story(*rows), TRUSTED).failure is F.SANDBOX


def test_the_words_of_a_denial_hold_what_is_known() -> None:
    bare = Denied("write", "/x", "EACCES", "openat")
    assert denial_words(bare) == "/x: write refused with EACCES"
    full = Denied(
        "create",
        "/h/d.db",
        "EROFS",
        "openat",
        "home",
        "--write /h",
        "XDG_DATA_HOME=/s",
        "its database",
    )
    assert denial_words(full) == (
        "/h/d.db (its database): create refused with EROFS, rule home, "
        "grant --write /h or set XDG_DATA_HOME=/s"
    )


@every_row(
    ("status", "failure"),
    [
        (0, None),
        (200, None),
        (399, None),
        (400, F.PROVIDER),
        (401, F.AUTH),
        (402, F.QUOTA),
        (403, F.AUTH),
        (404, F.MODEL),
        (413, F.CONTEXT),
        (429, F.RATE_LIMIT),
        (500, F.PROVIDER),
        (529, F.PROVIDER),
        (600, None),
    ],
)
def test_what_an_http_status_means(status: int, failure: F | None) -> None:
    assert http_failure(status) is failure


def test_the_order_of_the_rules_is_the_one_promised() -> None:
    order = ["ours", "signal", "result", "trouble", "http", "denied", "early", "zero", "code"]
    assert [name for name, _ in RULES] == order


def test_a_worker_that_lives_has_no_verdict() -> None:
    with pytest.raises(AssertionError):
        verdict(story(READY), TRUSTED)


def test_a_refusal_is_made_good_by_a_tool_that_works_and_by_no_other() -> None:
    refusal: Row = (1, Source.TEXT, Trouble(F.PERMISSION))
    tool: Row = (2, Source.PROTOCOL, Progress(Work.TOOL))
    end: Row = (4, Source.EXIT, Exited(0))
    rules = ExitRules(zero_means_success=False)
    failed = verdict(story(refusal, tool, (2, Source.PROTOCOL, ToolFailed("bash")), end), rules)
    assert failed.failure is F.PERMISSION
    assert verdict(story(refusal, tool, end), rules).state is WorkerState.COMPLETED


def test_a_host_besides_its_providers_is_no_cause_unless_it_complains_of_that_host() -> None:
    """CLIs ask for hosts of their maker's and go without; an outage of a provider is not the sandbox's."""
    asked = Denied("connect", "stats.test", "EAI_NONAME", "getaddrinfo", "no rule allows it", aside=True)
    beside = Evidence(Source.DENIAL, 2, asked, "stats.test")
    trouble = Evidence(Source.PROTOCOL, 6, Trouble(F.NETWORK), "connection refused")
    zero, one = (Evidence(Source.EXIT, 9, Exited(code), "") for code in (0, 1))
    ready, *_, done = story(READY, TEXT, DONE)
    assert verdict([ready, beside, done, zero], TRUSTED) == verdict([ready, done, zero], TRUSTED)
    assert verdict([ready, beside, trouble, one], TRUSTED).failure is F.NETWORK
    named = Evidence(Source.PROTOCOL, 6, Trouble(F.NETWORK), "getaddrinfo ENOTFOUND stats.test")
    found = verdict([ready, beside, named, one], TRUSTED)
    assert found.failure is F.SANDBOX
    assert "stats.test" in found.about
