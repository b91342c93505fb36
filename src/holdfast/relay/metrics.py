"""Metrics of a node for Prometheus, each described by the question it answers. Off by default."""

import functools
from collections.abc import Callable, Mapping
from typing import Final

QUESTIONS: Final[Mapping[str, str]] = {
    "holdfast_relay_executors": "Executors whose socket is here",
    "holdfast_relay_harnesses": "Harnesses that are joined to an executor here",
    "holdfast_relay_frames_routed": "Frames passed on since the start",
    "holdfast_relay_frames_unrouted": "Frames that were invalid or had no receiver",
    "holdfast_relay_unsent_bytes": "Bytes that wait for peers to take them",
    "holdfast_relay_bridge_up": "Whether this node is connected to NATS: 1, or 0",
    "holdfast_relay_bridge_streams": "Streams between this node and others",
    "holdfast_relay_bridge_lost": "Streams that ended since the start because NATS lost a message",
    "holdfast_relay_bridge_foreign": "Messages from NATS since the start that no node had signed",
}


def _look_up(count: Callable[[], Mapping[str, int]], name: str) -> float:
    return count()[name]


class RelayMetrics:
    """Metrics that count nothing: used by a node without --metrics."""

    def record_answer(self, operation: str, status: int, seconds: float) -> None:
        """Record that the registry answered a request with this HTTP status."""

    def record_rendezvous(self, role: str, result: str) -> None:
        """Record that an executor or a harness dialled: "success", or the code of the refusal."""

    def render(self) -> bytes | None:
        """The text for /metrics, or None when there is no such page."""
        return None


class PrometheusRelayMetrics(RelayMetrics):
    """Metrics for Prometheus; `count` answers the questions.

    The registry is our own: nodes do not share one.
    """

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Raises: ModuleNotFoundError: prometheus-client is not installed."""
        import prometheus_client as prometheus

        self._registry = prometheus.CollectorRegistry()
        self._latest = prometheus.generate_latest
        for name, about in QUESTIONS.items():
            gauge = prometheus.Gauge(name, about, registry=self._registry)
            gauge.set_function(functools.partial(_look_up, count, name))
        self._answers = prometheus.Histogram(
            "holdfast_relay_registry_seconds",
            "Time to answer the registry's requests: register, connect, validate",
            ["operation", "status"],
            registry=self._registry,
        )
        self._rendezvous = prometheus.Counter(
            "holdfast_relay_rendezvous",
            "Sockets of executors and harnesses that were opened or refused since the start",
            ["role", "result"],
            registry=self._registry,
        )

    def record_answer(self, operation: str, status: int, seconds: float) -> None:
        self._answers.labels(operation, str(status)).observe(seconds)

    def record_rendezvous(self, role: str, result: str) -> None:
        self._rendezvous.labels(role, result).inc()

    def render(self) -> bytes:
        return self._latest(self._registry)
