"""The table of measures, each with the bar it is held against."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from bench.confined import confined_burst, confined_read, confined_start, confined_write
from bench.idle import idle_daemons, idle_house
from bench.measures import (
    Contest,
    burst,
    echo,
    first_answer,
    memory,
    metadata,
    read_large,
    read_small,
    ready,
    start_true,
    stream,
    walk,
)
from bench.overhead import launch_overhead
from bench.resident import mcp_memory
from bench.sdk import client_run, client_stream
from bench.servers import Side
from bench.starts import (
    bare_python,
    bwrap_true,
    exec_true,
    import_package,
    list_tasks,
    show_version,
    srt_true,
)
from bench.supervised import decision_latency, denial_latency, exit_latency, idle_workers
from bench.watched import watch_ratio, watch_run


class Bar(NamedTuple):
    """Our median is held against a rival's as a ratio, or against a number if there is no rival."""

    better: str
    limit: float
    rival: Side | None = Side.REFERENCE

    def met(self, value: float) -> bool:
        return value <= self.limit if self.better == "lower" else value >= self.limit

    def __str__(self) -> str:
        return ("≤ " if self.better == "lower" else "≥ ") + f"{self.limit:g}" + ("x" if self.rival else "")


class Measure(NamedTuple):
    name: str
    title: str
    unit: str
    run: Callable[[Contest], list[float]]
    bars: tuple[Bar, ...]
    warms: bool = True  # whether an unmeasured round comes first
    ours_only: bool = False  # of no use, or not possible, with the reference
    beside: Mapping[Side, Callable[[Contest], list[float]]] = MappingProxyType({})  # in turns with our side
    once: bool = False  # one round only: what it needs takes long to set up, and it returns several samples


def lower(limit: float, rival: Side | None = Side.REFERENCE) -> Bar:
    return Bar("lower", limit, rival)


def higher(limit: float, rival: Side | None = Side.REFERENCE) -> Bar:
    return Bar("higher", limit, rival)


def own(name: str, title: str, run: Callable[[Contest], list[float]], limit: float) -> Measure:
    """The start of one of our programs, held against the interpreter that it runs on."""
    bars = (lower(limit, Side.PYTHON),)
    return Measure(name, title, "ms", run, bars, ours_only=True, beside={Side.PYTHON: bare_python})


MEASURES: Final = (
    Measure("ready", "ready to accept", "ms", ready, (lower(5),)),
    Measure("answer", "first answer", "ms", first_answer, (lower(12),)),
    Measure(
        "exec",
        "exec -- true",
        "ms",
        exec_true,
        (lower(1), lower(1, Side.SRT), lower(20, Side.BWRAP)),
        beside={Side.SRT: srt_true, Side.BWRAP: bwrap_true},
    ),
    own("version", "holdfast --version", show_version, 4),
    own("import", "import holdfast", import_package, 5),
    own("list", "holdfast task list", list_tasks, 8),
    Measure("start", "start → closed", "ms", start_true, (lower(0.1), lower(1, Side.SWEREX))),
    Measure("echo", "stdin echo", "ms", echo, (lower(0.05),)),
    Measure("stream", "stdout throughput", "MB/s", stream, (higher(1.5),)),
    Measure("burst", "8 connections", "starts/s", burst, (higher(3),)),
    Measure("walk", "fs/walk 10,000", "ms", walk, (lower(0.8),)),
    Measure("read-large", "fs/readFile 8 MiB", "ms", read_large, (lower(0.5),)),
    Measure("read-small", "fs/readFile 1 KiB", "ms", read_small, (lower(1.1),)),
    Measure("metadata", "fs/getMetadata", "ms", metadata, (lower(1.1),)),
    Measure("confined-start", "confined start → closed", "ms", confined_start, (lower(1 / 6),)),
    Measure("confined-burst", "8 connections, confined", "starts/s", confined_burst, (higher(4),)),
    Measure("confined-write", "confined write of 4 KiB", "ms", confined_write, (lower(0.01),)),
    Measure("confined-read", "confined read of 8 MiB", "ms", confined_read, (lower(0.5),)),
    Measure("launch", "view over bare spawn", "ms", launch_overhead, (lower(6, None),), ours_only=True),
    Measure("watch", "watched over unwatched writing", "x", watch_ratio, (lower(2, None),), ours_only=True),
    Measure(
        "watch-run", "watched over unwatched codex exec", "x", watch_run, (lower(1.1, None),), ours_only=True
    ),
    Measure(
        "idle-workers",
        "50 idle watched workers",
        "% of a core",
        idle_workers,
        (lower(20, None),),
        warms=False,
        ours_only=True,
        once=True,
    ),
    Measure(
        "idle-daemons",
        "daemons with nothing to do",
        "% of a core",
        idle_daemons,
        (lower(0.3, None),),
        warms=False,
        ours_only=True,
        once=True,
    ),
    Measure(
        "idle-house",
        "daemons with 30 idle workers",
        "% of a core",
        idle_house,
        (lower(2, None),),
        warms=False,
        ours_only=True,
        once=True,
    ),
    Measure("exit-told", "exit → told", "ms", exit_latency, (lower(500, None),), ours_only=True),
    Measure("decision-told", "question → told", "ms", decision_latency, (lower(2000, None),), ours_only=True),
    Measure(
        "denial-told", "third refusal → told", "ms", denial_latency, (lower(3000, None),), ours_only=True
    ),
    Measure(
        "client-run",
        "env.run",
        "ms",
        client_run,
        (lower(1.15, Side.RAW),),
        beside={Side.RAW: start_true},
        ours_only=True,
    ),
    Measure(
        "client-stream",
        "stdout in the client",
        "MB/s",
        client_stream,
        (higher(0.8, Side.RAW),),
        beside={Side.RAW: stream},
        ours_only=True,
    ),
    Measure("memory", "memory, alone, with helpers", "MiB", memory, (lower(1),), warms=False),
    Measure(
        "mcp-memory",
        "a worker's MCP server",
        "MiB",
        mcp_memory,
        (lower(15, None),),
        warms=False,
        ours_only=True,
    ),
)
