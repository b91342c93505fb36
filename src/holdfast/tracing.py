"""Tracing spans: a no-op unless OpenTelemetry's SDK is installed and configured.

Set OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_TRACES_EXPORTER=otlp) and install `holdfast-agents[otel]`. A program
that uses the client must set OpenTelemetry up itself to get spans.

Every span has a `result`: success, error or disconnected. Names are those of known methods and of the steps
below, so a peer cannot create new ones; texts of errors are not exported.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from holdfast.errors import ConnectionLost, Unreachable

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

_SWITCHES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)

# Steps of reaching an executor that cannot be dialled.
REGISTER: Final = "holdfast.remote.register"
REGISTRY_CONNECT: Final = "holdfast.remote.registry.connect"
REGISTRY_VALIDATE: Final = "holdfast.remote.registry.validate"
RENDEZVOUS: Final = "holdfast.remote.rendezvous.connect"
NOISE_CONNECT: Final = "holdfast.remote.noise.connect"  # all of a client: registry, rendezvous, handshake
NOISE_HANDSHAKE: Final = "holdfast.remote.noise.handshake"

Result = Literal["success", "error", "disconnected"]

enabled = False  # whether `span` and `tell_result` do anything


def set_up(environ: Mapping[str, str] = os.environ) -> bool:
    """Export spans if the environment requests it; return whether they are exported."""
    if not any(environ.get(name) for name in _SWITCHES) or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("tracing is asked for but not installed; install holdfast-agents[otel]")
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": "holdfast"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    enable()
    return True


def enable() -> None:
    """Create spans with the installed tracer provider."""
    global enabled
    enabled = True


@contextlib.contextmanager
def span(name: str, traceparent: str | None, tracestate: str | None) -> Iterator[None]:
    """Create a server span below the caller's trace context; an invalid context is ignored.

    The code that answers sets its result with `tell_result`. Without that the peer did not wait for the
    answer.
    """
    if not enabled:
        yield
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent or "", "tracestate": tracestate or ""}
    parent = TraceContextTextMapPropagator().extract(carrier)
    tracer = trace.get_tracer("holdfast")
    with tracer.start_as_current_span(
        name,
        context=parent,
        kind=trace.SpanKind.SERVER,
        attributes={"method": name, "result": "disconnected"},
        record_exception=False,
        set_status_on_exception=False,
    ):
        yield


def tell_result(result: Result) -> None:
    """Set the result of the request whose span is active."""
    if enabled:
        from opentelemetry import trace

        _set_result(trace.get_current_span(), result)


@contextlib.contextmanager
def client_span(name: str) -> Iterator[None]:
    """Create a span for a request of ours, below the active one, with its result."""
    if "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import trace

    tracer = trace.get_tracer("holdfast")
    with tracer.start_as_current_span(
        name, kind=trace.SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
    ) as made:
        result: Result = "error"
        try:
            yield
            result = "success"
        except (ConnectionLost, asyncio.CancelledError) as exc:
            result = "error" if isinstance(exc, Unreachable) else "disconnected"
            raise
        finally:
            _set_result(made, result)


def _set_result(made: "Span", result: Result) -> None:
    from opentelemetry.trace import StatusCode

    made.set_attribute("result", result)
    if result != "success":
        made.set_status(StatusCode.ERROR)


def headers() -> dict[str, str]:
    """The trace of the active span, as headers of an HTTP request."""
    parent, state = current() or (None, None)
    told = {"traceparent": parent, "tracestate": state}
    return {name: value for name, value in told.items() if value}


def current() -> tuple[str, str | None] | None:
    """Return the traceparent and tracestate of the active span; None without one.

    Code with a span has imported OpenTelemetry already, so without one it is not imported here.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return parent, context.trace_state.to_header() or None
