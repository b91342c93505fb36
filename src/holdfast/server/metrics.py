"""A few numbers for Prometheus, each named for the question it answers. Off unless asked for."""

from typing import TYPE_CHECKING

from holdfast.errors import StartupError

if TYPE_CHECKING:
    from holdfast.server.executor import Executor


class Metrics:
    """Counts nothing: what a server without --metrics uses."""

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

    def record_answer(self, method: str, code: int, seconds: float) -> None:
        from holdfast.wire.methods import METHODS

        name = method if method in METHODS else "unknown"  # a client must not be able to grow this table
        self._requests.labels(name, str(code)).observe(seconds)

    def render(self) -> bytes:
        return self._latest(self._registry)
