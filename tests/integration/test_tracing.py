"""Spans of requests, below the trace of whoever asked."""

from collections.abc import Callable, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import tracing
from tests.support.peer import ready, serving

TRACE, SPAN = "a" * 32, "b" * 16


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Sequence[ReadableSpan]]:
    """Finished spans named after the request the tests make; tracing is off again afterwards."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)  # the global provider is set once for all
    monkeypatch.setattr(tracing, "_on", False)
    tracing.enable()
    return lambda: [span for span in exporter.get_finished_spans() if span.name == "environment/status"]


@pytest.mark.parametrize("slots", [1, 4])
async def test_the_callers_trace_is_the_parent(slots: int, spans: Callable[[], list[ReadableSpan]]) -> None:
    context = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
    async with serving(slots=slots) as (url, _), ready(url) as peer:
        await peer.send({"id": "t", "method": "environment/status", "trace": context})
        assert await peer.answer("t") == {"status": "ready"}
        await peer.call("environment/info")  # answered after the span has ended
    [span] = spans()
    assert span.kind is trace.SpanKind.SERVER
    assert span.parent is not None
    assert (f"{span.parent.trace_id:x}", f"{span.parent.span_id:x}") == (TRACE, SPAN)
    assert span.parent.trace_state["vendor"] == "1"


@pytest.mark.parametrize(
    "context",
    [
        None,
        {},
        {"traceparent": "nonsense"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"tracestate": "a=1"},
    ],
)
async def test_without_a_valid_trace_the_span_has_no_parent(
    context: object, spans: Callable[[], list[ReadableSpan]]
) -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.send({"id": "t", "method": "environment/status", "trace": context})
        assert await peer.answer("t") == {"status": "ready"}
        await peer.call("environment/info")
    [span] = spans()
    assert span.parent is None


def test_nothing_is_exported_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_on", False)
    monkeypatch.setattr(trace, "get_tracer", lambda _: pytest.fail("no span was wanted"))
    assert tracing.set_up({}) is False
    assert tracing.set_up({"OTEL_TRACES_EXPORTER": "none"}) is False
    with tracing.span("x", None, None):
        assert not tracing.is_enabled()
