"""A few numbers for Prometheus, each named for the question it answers. Off unless asked for."""

from typing import TYPE_CHECKING, Final

from holdfast.errors import StartupError

if TYPE_CHECKING:
    from holdfast.server.executor import Executor


UNKNOWN: Final = "unknown"  # every method that is none: a client must not be able to grow a table
PROCESS_BUCKETS: Final = (0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600)  # seconds: `ls` to a night's work


class Metrics:
    """Counts nothing: what a server without --metrics uses."""

    def record_connection(self, *, opened: bool) -> None:
        """A connection began, or ended."""

    def record_answer(self, method: str, code: int, seconds: float) -> None:
        """A request was answered, with this error code or 0."""

    def render(self) -> bytes | None:
        """The text for /metrics, or None when there is no such page."""
        return None


NO_METRICS = Metrics()


class PrometheusMetrics(Metrics):
    """The real ones; a registry of our own, so that two servers in one process do not meet."""

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
        executor.on_process_closed = self.record_process

    def record_connection(self, *, opened: bool) -> None:
        self._connections.inc(1 if opened else -1)
        if opened:
            self._connections_made.inc()

    def record_process(self, code: int, seconds: float) -> None:
        """A process is over, with this exit code."""
        self._processes.labels("success" if code == 0 else "failure").observe(seconds)

    def record_answer(self, method: str, code: int, seconds: float) -> None:
        from holdfast.wire.methods import METHODS

        name = method if method in METHODS else UNKNOWN
        self._requests.labels(name, str(code)).observe(seconds)

    def render(self) -> bytes:
        return self._latest(self._registry)
