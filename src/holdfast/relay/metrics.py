"""A few numbers of a node for Prometheus, each named for the question it answers. Off unless asked for."""

import functools
from collections.abc import Callable, Mapping
from typing import Final

QUESTIONS: Final[Mapping[str, str]] = {
    "holdfast_relay_executors": "Executors whose socket is here",
    "holdfast_relay_harnesses": "Harnesses whose socket is here",
    "holdfast_relay_frames_routed": "Frames passed on since the start",
    "holdfast_relay_frames_unrouted": "Frames that were none, or that nobody was there for",
    "holdfast_relay_unsent_bytes": "Bytes that wait for peers to take them",
}


def _look_up(count: Callable[[], Mapping[str, int]], name: str) -> float:
    return count()[name]


def make_page(count: Callable[[], Mapping[str, int]]) -> Callable[[], bytes]:
    """What renders /metrics; `count` answers the questions. The registry is our own: nodes do not meet.

    Raises:
        ModuleNotFoundError: prometheus-client is not installed.
    """
    import prometheus_client as prometheus

    registry = prometheus.CollectorRegistry()
    for name, about in QUESTIONS.items():
        gauge = prometheus.Gauge(name, about, registry=registry)
        gauge.set_function(functools.partial(_look_up, count, name))
    return lambda: prometheus.generate_latest(registry)
