"""Events that a record describes."""

from holdfast.agents.catalog.agent import EventRule, RetrySign
from holdfast.agents.catalog.eventrules import DescribedEvents, find, fits
from holdfast.agents.evidence.evidence import (
    Claim,
    Drift,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    TokenUsage,
    ToolFailed,
    Trouble,
    Used,
    Want,
    Wants,
    Work,
    Working,
)
from tests.support.rows import every_row


def rule(kind: str, means: str, **more: object) -> EventRule:
    return EventRule(when=((("type",), (kind,)),), means=means, **more)  # type: ignore[arg-type]


RULES = (
    rule("begin", "start"),
    rule("turn", "turn"),
    rule("call", "tool-call", tool=("name",), input=("args",)),
    rule("result", "tool-ended", code=("exit",), message=(("out",),)),
    rule("bad", "tool-failed", message=(("none",), ("why",))),
    rule("wait", "retry", attempt=("n",), of=("of",), in_ms=("ms",), http=("status",), message=(("why",),)),
    rule("oops", "error", message=(("why",),)),
    rule("step", "nothing", usage={"input": ("u", "in"), "output": ("u", "out")}, usage_adds=True),
    rule("ask", "asks", message=(("q",),)),
    rule("lost", "failed", message=(("why",),)),
    rule("over", "done"),
)


def claims(*lines: str, retries: tuple[RetrySign, ...] = ()) -> list[Claim]:
    parser = DescribedEvents(RULES, retries, secrets=["hush-hush"])
    return [item.claim for line in lines for item in parser.feed(line, 10.0)]


def test_a_run_with_a_tool_ends_with_what_it_used() -> None:
    seen = claims(
        '{"type":"begin"}',
        '{"type":"turn"}',
        '{"type":"call","name":"bash","args":{"c":"ls"}}',
        '{"type":"result","exit":0}',
        '{"type":"step","u":{"in":100,"out":20}}',
        '{"type":"step","u":{"in":50,"out":1}}',
        '{"type":"over"}',
    )
    used = TokenUsage(input_tokens=150, output_tokens=21)
    assert seen == [
        Ready(),
        Working(Work.THINKING),
        Progress(Work.STREAMING),
        Working(Work.TOOL),
        Progress(Work.TOOL),
        Working(Work.THINKING),
        Used(TokenUsage(input_tokens=100, output_tokens=20)),
        Used(used),
        Result(ok=True, usage=used),
    ]


def test_a_tool_that_failed_or_was_refused_is_told() -> None:
    seen = claims(
        '{"type":"call","name":"bash"}',
        '{"type":"result","exit":2,"out":"no such file"}',
        '{"type":"bad","why":"this command requires approval"}',
        '{"type":"over"}',
    )
    assert ToolFailed("bash: no such file", 2) in seen
    assert ToolFailed("bash: this command requires approval") in seen
    assert seen[-1] == Result(ok=True, refused=("bash",))


def test_an_attempt_an_error_and_an_end_say_their_cause() -> None:
    assert claims('{"type":"wait","n":2,"of":5,"ms":1500,"status":429}')[1:] == [
        Retrying(2, 5, Failure.RATE_LIMIT, 429, 11.5)
    ]
    assert claims('{"type":"wait","why":"503 service unavailable"}')[1:] == [
        Retrying(1, None, Failure.PROVIDER, 503)
    ]
    assert claims('{"type":"oops","why":"invalid api key"}')[1:] == [Trouble(Failure.AUTH)]
    assert claims('{"type":"oops","why":"a bad day"}')[1:] == []
    (failed,) = claims('{"type":"lost","why":"401 hush-hush"}')[1:]
    assert isinstance(failed, Result)
    assert (failed.ok, failed.failure) == (False, Failure.AUTH)
    assert "hush-hush" not in repr(failed)


def test_a_question_is_a_wait() -> None:
    assert claims('{"type":"ask","q":"run ls?"}')[1:] == [Wants(Want.DECISION, "run ls?")]


@every_row(
    "line", ["{", "[]", "1", '{"type":3}', '{"type":"news"}', '{"type":{"type":"over"}}', '{"type":"0"}']
)
def test_what_no_rule_fits_is_drift_and_no_error(line: str) -> None:
    (drift,) = claims(line)
    assert isinstance(drift, Drift)


@every_row(
    "line",
    [
        '{"type":"call","name":{"a":[1]},"args":7}',
        '{"type":"result","exit":"x"}',
        '{"type":"result","exit":1e400}',
        '{"type":"wait","n":"?","of":true,"ms":-5,"status":99999}',
        '{"type":"step","u":{"in":"many","out":[1]}}',
        '{"type":"lost","why":{"deep":[null]}}',
        '{"type":"lost"}',
    ],
)
def test_nonsense_in_a_known_event_is_no_error(line: str) -> None:
    assert claims(line)[0] == Ready() or isinstance(claims(line)[0], Drift)


def test_places() -> None:
    event = {"a": [{"b": 1}, {"b": 2}, {}], "n": None, "t": True}
    assert find(event, ("a", "*", "b")) == [1, 2]
    assert find(event, ("a", "-2", "b")) == [2]
    assert find(event, ("a", "7", "b")) == find(event, ("n",)) == find(event, ("a", "b")) == []
    assert fits(EventRule(((("a", "*", "b"), (2,)),), "text"), event)
    assert not fits(EventRule(((("t",), (1,)),), "text"), event)
    assert fits(EventRule(((("t",), ("*",)),), "text"), event)
    assert not fits(EventRule(((("n",), ("*",)),), "text"), event)


def test_a_text_may_be_told_by_its_beginning() -> None:
    starts = EventRule(when=((("text",), ("Ran into*", 7)),), means="failed")
    assert fits(starts, {"text": "Ran into this error: 429"})
    assert fits(starts, {"text": 7})
    assert not fits(starts, {"text": "I ran into"})
    assert not fits(starts, {"text": ["Ran into this error"]})


def test_a_turn_that_failed_is_not_done_by_saying_so() -> None:
    """goose says `complete` behind every error, and its exit code is 0."""
    *_, last = claims('{"type":"lost","why":"429 too many"}', '{"type":"over"}')
    assert isinstance(last, Result)
    assert (last.ok, last.failure) == (False, Failure.RATE_LIMIT)
    *_, last = claims('{"type":"lost","why":"429 too many"}', '{"type":"turn"}', '{"type":"over"}')
    assert isinstance(last, Result)
    assert last.ok
