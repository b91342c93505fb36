"""Metrics for Prometheus, each described by the question it answers. Off by default."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from holdfast.errors import StartupError

if TYPE_CHECKING:
    from holdfast.server.executor import Executor


log = logging.getLogger(__name__)

Step = Literal["registration", "rendezvous"]

WRITE_S: Final = 15.0  # the usual scrape interval of Prometheus
PROCESS_BUCKETS: Final = (0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600)  # seconds: from `ls` to a night's work


class PrometheusMetrics:
    """The metrics of one server. It has its own registry, so two servers in one process are separate."""

    def __init__(self, executor: "Executor") -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise StartupError(
                "--metrics needs the package prometheus-client",
                remedy="pip install 'holdfast-agents[metrics]'",
            ) from None
        self._registry = prometheus.CollectorRegistry()
        self._latest = prometheus.generate_latest
        sessions = prometheus.Gauge(
            "holdfast_sessions", "Sessions, attached or waiting to be resumed", registry=self._registry
        )
        sessions.set_function(lambda: len(executor.sessions))
        live = prometheus.Gauge("holdfast_processes_live", "Processes that run", registry=self._registry)
        live.set_function(lambda: sum(session.processes.live() for session in executor.sessions))
        self._requests = prometheus.Histogram(
            "holdfast_request_seconds",
            "Time to answer a request, by method and error code (0: no error)",
            ["method", "code"],
            registry=self._registry,
        )
        self._connections = prometheus.Gauge(
            "holdfast_connections", "Connections that are open", registry=self._registry
        )
        self._connections_made = prometheus.Counter(
            "holdfast_connections_made", "Connections since the start", registry=self._registry
        )
        self._processes = prometheus.Histogram(
            "holdfast_process_seconds",
            "Time from the start of a process to the end of its output, by how it ended",
            ["result"],
            buckets=PROCESS_BUCKETS,
            registry=self._registry,
        )
        registrations = prometheus.Histogram(
            "holdfast_remote_registration_seconds",
            "Time to register at a registry, by how that ended",
            ["result"],
            registry=self._registry,
        )
        rendezvous = prometheus.Histogram(
            "holdfast_remote_rendezvous_seconds",
            "Time to dial the relay or the host, by how that ended",
            ["result"],
            registry=self._registry,
        )
        self._steps = {"registration": registrations, "rendezvous": rendezvous}
        self._reconnects = prometheus.Counter(
            "holdfast_remote_reconnects",
            "Times that it was to be dialled again, by why",
            ["reason"],
            registry=self._registry,
        )
        executor.on_process_closed = self.record_process

    def record_connection(self, *, opened: bool) -> None:
        """Record that a connection began, or ended."""
        self._connections.inc(1 if opened else -1)
        if opened:
            self._connections_made.inc()

    @contextlib.contextmanager
    def time(self, step: Step) -> Iterator[None]:
        """Measure the block, which registers us or dials; a cancelled block is not counted."""
        began, result = time.perf_counter(), "error"
        try:
            yield
            result = "success"
        except asyncio.CancelledError:
            result = ""
            raise
        finally:
            if result:
                self._steps[step].labels(result).observe(time.perf_counter() - began)

    def record_reconnect(self, reason: str) -> None:
        """Record a redial; reasons are those of `rendezvous` and of `server.remote`."""
        self._reconnects.labels(reason).inc()

    def record_process(self, code: int, seconds: float) -> None:
        """Record that a process ended with this exit code."""
        self._processes.labels("success" if code == 0 else "failure").observe(seconds)

    def record_answer(self, method: str, code: int, seconds: float) -> None:
        """Record that a request was answered, with this error code or 0."""
        from holdfast.wire.methods import METHODS, UNKNOWN

        name = method if method in METHODS else UNKNOWN
        self._requests.labels(name, str(code)).observe(seconds)

    def render(self) -> bytes:
        """The text for /metrics."""
        return self._latest(self._registry)


async def keep_writing(metrics: PrometheusMetrics, path: str) -> NoReturn:
    """Write the page to a file periodically, for a collector that reads files; it is replaced as a whole."""
    from holdfast.local.atomicfile import replace_file

    told = False
    while True:
        try:
            await asyncio.to_thread(replace_file, path, metrics.render(), durable=False, mode=0o644)
            told = False
        except OSError as exc:
            if not told:
                log.warning("metrics cannot be written", extra={"reason": exc.strerror or type(exc).__name__})
            told = True
        await asyncio.sleep(WRITE_S)


def timed(metrics: PrometheusMetrics | None, step: Step) -> contextlib.AbstractContextManager[None]:
    """Measure as `PrometheusMetrics.time` does, if there are metrics."""
    return contextlib.nullcontext() if metrics is None else metrics.time(step)
