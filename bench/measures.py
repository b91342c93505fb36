"""What is measured: one function per measure.

A function measures one round on one server and returns its samples. It opens its own connection, warms it
up, and checks that the server really did the work.
"""

import base64
import itertools
import json
import os
import select
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.client import Connection, Failed, answers
from bench.fixtures import WALK_ENTRIES, Fixtures
from bench.servers import Server, running, standalone_bytes

ROUND_WITHIN_S: Final = 120.0  # one round of one measure; beyond it something hangs
CONNECTIONS: Final = 8
MS: Final = 1e3

OUTPUT, CLOSED = b'"process/output"', b'"process/closed"'
CHUNK: Final = b'"chunk":"'


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything one round does."""

    rounds: int = 5
    warm: int = 5
    starts: int = 30
    echoes: int = 30
    stream_bytes: int = 256 << 20
    burst_s: float = 3.0
    walks: int = 10
    large_reads: int = 10
    small_calls: int = 200
    launches: int = 2

    @classmethod
    def quick(cls) -> "Plan":
        return cls(rounds=2, starts=15, echoes=15, stream_bytes=64 << 20, burst_s=1.0, walks=3, large_reads=3)


# The unmeasured first round of a measure, and what a server is given to do before it is weighed.
LIGHT: Final = Plan(
    starts=5, echoes=5, stream_bytes=32 << 20, burst_s=0.5, walks=2, large_reads=2, small_calls=20, launches=1
)


@dataclass(frozen=True, slots=True)
class Contest:
    """One server with what a round needs."""

    server: Server
    plan: Plan
    fixtures: Fixtures
    home: Path  # for the servers a measure starts itself
    sandbox: object = None  # what processes are confined by


def start_true(contest: Contest) -> list[float]:
    """Request sent until `process/closed` is here, one at a time."""
    plan, samples = contest.plan, []
    with Connection(contest.server.url).initialize() as connection:
        for number in range(plan.warm + plan.starts):
            began = time.perf_counter()
            request_id = connection.request(
                "process/start", start_params(contest, f"p{number}", ["/bin/true"])
            )
            replied = closed = False
            while not closed:
                message = connection.message()
                closed = CLOSED in message
                replied = replied or answers(message, request_id)
            samples.append((time.perf_counter() - began) * MS)
            if not replied:
                connection.reply(request_id)
    return samples[plan.warm :]


def echo(contest: Contest) -> list[float]:
    """A line written to the stdin of `cat` until it comes back as output."""
    plan, samples = contest.plan, []
    chunk = base64.b64encode(b"a line of input\n").decode()
    with Connection(contest.server.url).initialize() as connection:
        connection.call("process/start", start_params(contest, "cat", ["/bin/cat"], pipeStdin=True))
        for number in range(plan.warm + plan.echoes):
            began = time.perf_counter()
            params = {"processId": "cat", "chunk": chunk, "writeId": f"w{number}"}
            request_id = connection.request("process/write", params)
            replied = echoed = False
            while not echoed:
                message = connection.message()
                echoed = OUTPUT in message
                replied = replied or answers(message, request_id)
            samples.append((time.perf_counter() - began) * MS)
            if not replied:
                connection.reply(request_id)
        connection.call("process/terminate", {"processId": "cat"})
    return samples[plan.warm :]


def stream(contest: Contest) -> list[float]:
    """Decoded output in MB/s, from the request until `process/closed`."""
    size = contest.plan.stream_bytes
    argv = [shutil.which("head") or "/usr/bin/head", "-c", str(size), "/dev/zero"]
    with Connection(contest.server.url).initialize() as connection:
        began = time.perf_counter()
        request_id = connection.request("process/start", start_params(contest, "head", argv))
        received = drain(connection, request_id)
        took = time.perf_counter() - began
    if received != size:
        raise Failed(f"{received} bytes of output came, {size} were written")
    return [size / took / 1e6]


def drain(connection: Connection, request_id: int) -> int:
    """How many bytes of output arrive until `process/closed`; the hot loop of the client."""
    received, frame, deadline = 0, connection.frame, time.monotonic() + ROUND_WITHIN_S
    while True:
        final, begin, stop = frame()
        if time.monotonic() > deadline:
            raise Failed("the output did not end")
        buffer = connection.buffer
        at = buffer.find(CHUNK, begin, stop)
        if at >= 0 and final:
            first = at + len(CHUNK)
            last = buffer.find(b'"', first, stop)
            padding = buffer.count(b"=", last - 2, last)
            received += (last - first) // 4 * 3 - padding
            continue
        message = bytes(buffer[begin:stop])
        if CLOSED in message:
            return received
        answers(message, request_id)


def burst(contest: Contest) -> list[float]:
    """Processes started and closed per second over eight connections.

    One thread polls all of them: eight threads would mostly wait for one interpreter's lock.
    """
    connections = [Connection(contest.server.url).initialize() for _ in range(CONNECTIONS)]
    try:
        return [burst_rate(contest, connections)]
    finally:
        for connection in connections:
            connection.socket.close()


def burst_rate(contest: Contest, connections: list[Connection]) -> float:
    numbers, done = itertools.count(), 0
    poller = select.poll()
    by_descriptor = {connection.fileno(): connection for connection in connections}
    waiting: dict[int, tuple[int, int]] = {}  # descriptor → id of its start, messages still to come

    def launch(descriptor: int) -> None:
        params = start_params(contest, f"p{next(numbers)}", ["/bin/true"])
        waiting[descriptor] = by_descriptor[descriptor].request("process/start", params), 2

    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
        launch(descriptor)
    began = time.perf_counter()
    until = began + contest.plan.burst_s
    while (now := time.perf_counter()) < until:
        for descriptor, _ in poller.poll((until - now) * MS):
            connection = by_descriptor[descriptor]
            while True:
                message = connection.message()
                request_id, missing = waiting[descriptor]
                missing -= (CLOSED in message) + answers(message, request_id)
                waiting[descriptor] = request_id, missing
                if not missing:
                    done += 1
                    launch(descriptor)
                if not connection.buffered:
                    break
    return done / (time.perf_counter() - began)


def walk(contest: Contest) -> list[float]:
    options = {
        "maxDepth": 64,
        "maxDirectories": 10_000,
        "maxEntries": 50_000,
        "followDirectorySymlinks": False,
    }
    params = {"path": contest.fixtures.tree.as_uri(), "options": options}

    def check(reply: bytes) -> None:
        result = json.loads(reply)["result"]
        if len(result["entries"]) != WALK_ENTRIES or result["truncated"] or result["errors"]:
            raise Failed(f"fs/walk found {len(result['entries'])} of {WALK_ENTRIES} entries")

    return calls(contest, "fs/walk", params, contest.plan.walks, check)


def read_large(contest: Contest) -> list[float]:
    return read(contest, contest.fixtures.large, contest.plan.large_reads)


def read_small(contest: Contest) -> list[float]:
    return read(contest, contest.fixtures.small, contest.plan.small_calls)


def read(contest: Contest, path: Path, count: int) -> list[float]:
    def check(reply: bytes) -> None:
        if base64.b64decode(json.loads(reply)["result"]["dataBase64"]) != path.read_bytes():
            raise Failed(f"fs/readFile returned something else than {path.name}")

    return calls(contest, "fs/readFile", {"path": path.as_uri()}, count, check)


def metadata(contest: Contest) -> list[float]:
    path = contest.fixtures.small

    def check(reply: bytes) -> None:
        if json.loads(reply)["result"]["size"] != path.stat().st_size:
            raise Failed("fs/getMetadata reports another size")

    return calls(contest, "fs/getMetadata", {"path": path.as_uri()}, contest.plan.small_calls, check)


def calls(
    contest: Contest, method: str, params: object, count: int, check: Callable[[bytes], None]
) -> list[float]:
    """Round trips of one request, one at a time; the first reply is checked and not timed."""
    samples = []
    with Connection(contest.server.url).initialize() as connection:
        check(connection.call(method, params))
        for _ in range(contest.plan.warm):
            connection.reply(connection.request(method, params))
        for _ in range(count):
            began = time.perf_counter()
            connection.reply(connection.request(method, params))
            samples.append((time.perf_counter() - began) * MS)
    return samples


def memory(contest: Contest) -> list[float]:
    """A fresh server after a fixed load; one long-lived server is one sample of its allocator's luck."""
    with running(contest.server.spec, contest.home) as server:
        fresh = replace(contest, server=server, plan=LIGHT)
        for work in (start_true, echo, stream, burst, walk, read_large, read_small, metadata):
            work(fresh)
        return [standalone_bytes(server.pid) / (1 << 20)]


def ready(contest: Contest) -> list[float]:
    """From starting the program to a finished WebSocket handshake with it."""
    samples = []
    for _ in range(contest.plan.launches):
        began = time.perf_counter()
        with running(contest.server.spec, contest.home) as server, Connection(server.url):
            samples.append((time.perf_counter() - began) * MS)
    return samples


def first_answer(contest: Contest) -> list[float]:
    """From starting the program to its answer to `initialize`: what a client waits for that started it."""
    samples = []
    for _ in range(contest.plan.launches):
        began = time.perf_counter()
        with running(contest.server.spec, contest.home) as server, Connection(server.url).initialize():
            samples.append((time.perf_counter() - began) * MS)
    return samples


def spawn_floor(plan: Plan) -> list[float]:
    """What the kernel alone needs to start /bin/true and to report its end, in ms."""
    samples = []
    for _ in range(plan.warm + plan.starts):
        began = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)
        samples.append((time.perf_counter() - began) * MS)
    return samples[plan.warm :]


def start_params(contest: Contest, process_id: str, argv: list[str], **more: object) -> dict[str, object]:
    cwd = contest.fixtures.root.as_uri()
    common = {"cwd": cwd, "env": {}, "tty": False, "sandbox": contest.sandbox}
    return {"processId": process_id, "argv": argv, **common, **more}
