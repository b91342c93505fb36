"""Spans of requests, below the trace of whoever asked."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import tracing
from holdfast.client.connection import ClientConnection
from holdfast.errors import ConnectionLost, StartupError
from tests.support.peer import WAIT_S, Refused, ready, serving
from tests.support.relayservice import executing, reached, relay_service

TRACE, SPAN = "a" * 32, "b" * 16


@pytest.fixture
def every_span(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Sequence[ReadableSpan]]:
    """Finished spans; tracing is off again afterwards."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)  # the global provider is set once for all
    monkeypatch.setattr(tracing, "enabled", False)
    tracing.enable()
    return exporter.get_finished_spans


@pytest.fixture
def spans(every_span: Callable[[], Sequence[ReadableSpan]]) -> Callable[[], Sequence[ReadableSpan]]:
    """Those named after the request the tests make."""
    return lambda: [span for span in every_span() if span.name == "environment/status"]


def tell(found: Sequence[ReadableSpan], kind: trace.SpanKind) -> list[tuple[str, object]]:
    """Names and results, in the order in which they ended."""
    return [(span.name, (span.attributes or {})["result"]) for span in found if span.kind is kind]


@pytest.mark.parametrize("slots", [1, 4])
async def test_the_callers_trace_is_the_parent(slots: int, spans: Callable[[], list[ReadableSpan]]) -> None:
    context = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
    async with serving(slots=slots) as (url, _), ready(url) as peer:
        await peer.send({"id": "t", "method": "environment/status", "trace": context})
        assert await peer.answer("t") == {"status": "ready"}
        await peer.call("environment/info")  # answered after the span has ended
    [span] = spans()
    assert span.kind is trace.SpanKind.SERVER
    assert dict(span.attributes or {}) == {"method": "environment/status", "result": "success"}
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
    monkeypatch.setattr(tracing, "enabled", False)
    monkeypatch.setattr(trace, "get_tracer", lambda _: pytest.fail("no span was wanted"))
    assert tracing.set_up({}) is False
    assert tracing.set_up({"OTEL_TRACES_EXPORTER": "none"}) is False
    with tracing.span("x", None, None):
        assert not tracing.enabled


async def test_a_name_that_a_client_made_up_is_no_name_of_a_span(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    async with serving() as (url, _), ready(url) as peer:
        for name in ("made/up", "process/start/../../x"):
            with pytest.raises(Refused):
                await peer.call(name)
    assert tell(every_span(), trace.SpanKind.SERVER)[1:] == [("unknown", "error")] * 2


async def test_a_client_says_what_became_of_its_requests(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    async with serving() as (url, _):
        async with holdfast.connect(url) as environment:
            with pytest.raises(holdfast.NotFound):
                await environment.files.read("/no/such/file")
        with pytest.raises(holdfast.Unreachable):
            async with holdfast.connect("ws://127.0.0.1:1"):
                pass
    asked, answered = (tell(every_span(), kind) for kind in (trace.SpanKind.CLIENT, trace.SpanKind.SERVER))
    assert asked == [("initialize", "success"), ("fs/getMetadata", "error")]
    assert answered == asked
    below = {span.context.span_id: span for span in every_span() if span.context is not None}
    for span in every_span():
        if span.kind is trace.SpanKind.SERVER:
            assert span.parent is not None
            assert below[span.parent.span_id].name == span.name
    assert not any(span.events for span in every_span())  # no text of an error


async def test_a_request_whose_link_ends_was_disconnected(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    connection = ClientConnection(cast(Any, None), 1)  # whose link is gone
    with pytest.raises(ConnectionLost):
        await connection.call("environment/status", None)
    assert tell(every_span(), trace.SpanKind.CLIENT) == [("environment/status", "disconnected")]


async def test_a_request_that_nobody_waits_for_any_more_was_disconnected(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "sleep 60")
        await peer.ask("process/read", {"processId": "p", "waitMs": 60_000})
        peer.link.transport.abort()
        async with asyncio.timeout(WAIT_S):
            while ("process/read", "disconnected") not in tell(every_span(), trace.SpanKind.SERVER):
                await asyncio.sleep(0.01)


async def test_registering_and_meeting_are_spans_and_carry_their_trace(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    async with relay_service() as service:
        async with executing(service), reached(service):
            pass
        steps = [told for told in tell(every_span(), trace.SpanKind.CLIENT) if "remote" in told[0]]
        assert Counter(steps) == {
            (tracing.REGISTER, "success"): 1,
            (tracing.RENDEZVOUS, "success"): 2,
            (tracing.REGISTRY_CONNECT, "success"): 1,
            (tracing.REGISTRY_VALIDATE, "success"): 1,
            (tracing.NOISE_CONNECT, "success"): 1,
            (tracing.NOISE_HANDSHAKE, "success"): 1,
        }
        told = [asked.headers for asked in service.asked] + [headers for _, headers in service.upgrades]
        traces = {f"{span.context.trace_id:032x}" for span in every_span() if span.context is not None}
        assert len(told) == 5
        assert all(headers["traceparent"].split("-")[1] in traces for headers in told)


async def test_a_handshake_that_comes_to_nothing_is_an_error_below_the_attempt(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    async with relay_service() as service, executing(service):
        service.answers["validate"].append((200, {"valid": False}))
        with pytest.raises(holdfast.Unreachable):
            async with reached(service):
                pass
    found = [span for span in every_span() if span.name in (tracing.NOISE_CONNECT, tracing.NOISE_HANDSHAKE)]
    assert [(span.name, (span.attributes or {})["result"]) for span in found] == [
        (tracing.NOISE_HANDSHAKE, "error"),
        (tracing.NOISE_CONNECT, "error"),
    ]
    assert found[0].parent is not None
    assert found[1].context is not None
    assert found[0].parent.span_id == found[1].context.span_id
    assert not any(span.events for span in found)


async def test_a_registry_that_refuses_is_an_error(
    every_span: Callable[[], Sequence[ReadableSpan]],
) -> None:
    async with relay_service() as service:
        service.answers["register"].append((403, {}))
        with pytest.raises(StartupError):
            async with executing(service):
                pass
    assert tell(every_span(), trace.SpanKind.CLIENT) == [(tracing.REGISTER, "error")]
