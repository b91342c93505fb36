"""A relay under many executors: memory, latencies, throughput, and nodes that are killed while streams work.

python -m bench.relayscale                 1,000 executors on three nodes over one PostgreSQL, 200 streams
python -m bench.relayscale --executors 100 --seconds 5 --record docs/records/relay.md
"""

import argparse
import asyncio
import contextlib
import os
import platform
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.relaypeers import PUBLIC, AskingHarness, Balancer, EchoExecutor, Wire
from bench.report import quantile
from holdfast.wire import relayframes
from tests.support import postgres
from tests.support.natsservers import nats_server

AT_ONCE: Final = 20  # registrations
SETTLE_S: Final = 2.0
ROUNDS: Final = 2000
BULK_BYTES: Final = 61_456  # a full record
BULK_S: Final = 4.0
ANSWER_S: Final = 90.0  # after the end, for what is still to be answered: then it is lost


class Node:
    """`holdfast relay serve` as a child."""

    def __init__(self, process: asyncio.subprocess.Process, place: tuple[str, int]) -> None:
        self.process, self.place = process, place

    @property
    def pss_kb(self) -> int:
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text("ascii")
        return int(next(iter(re.findall(r"^Pss: +(\d+) kB", text, re.MULTILINE))))

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def start_node(store: str, nats: str | None = None) -> Node:
    """On a port that is free now: a node must know its address before it listens. With NATS it has no other
    address than all nodes."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    here = f"http://127.0.0.1:{port}"
    singly = ("--node-url", here) if nats is None else ("--nats", nats)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "relay", "serve", "--listen", here, "--store", store,
        "--public-url", f"http://{PUBLIC}", *singly, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if process.stdout is None:
        raise AssertionError("a pipe was asked for")
    line = await process.stdout.readline()
    if not line:
        raise AssertionError("the node did not begin")
    return Node(process, ("127.0.0.1", port))


async def add_token(store: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "relay", "token", "add", f"bench-{time.monotonic_ns()}",
        "--store", store, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.decode().strip()


@contextlib.asynccontextmanager
async def nodes_on(
    store: str, count: int, nats: str | None = None
) -> AsyncIterator[tuple[list[Node], Balancer, str]]:
    token, nodes = await add_token(store), [await start_node(store, nats) for _ in range(count)]
    balancer = Balancer()
    balancer.nodes = [node.place for node in nodes]
    try:
        yield nodes, balancer, token
    finally:
        for node in nodes:
            if node.process.returncode is None:
                node.process.send_signal(signal.SIGTERM)
                await node.process.wait()


@contextlib.contextmanager
def store_of(kind: str) -> Iterator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            yield f"{folder}/relay.db"
        return
    binaries = postgres.programs()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed")
    with postgres.server(binaries) as address:
        yield address


def spread(samples: Sequence[float], *, unit: float = 1000.0) -> str:
    return f"p50 {quantile(samples, 0.5) * unit:.2f}, p99 {quantile(samples, 0.99) * unit:.2f}"


def added(samples: Sequence[float], base: Sequence[float]) -> str:
    """What a quantile of these is above the same one of those, in milliseconds."""
    by = {
        name: (quantile(samples, at) - quantile(base, at)) * 1000
        for name, at in (("p50", 0.5), ("p99", 0.99))
    }
    return ", ".join(f"{name} {value:.2f}" for name, value in by.items())


async def gather_executors(
    balancer: Balancer, token: str, count: int, tasks: asyncio.TaskGroup
) -> tuple[list[EchoExecutor], list[asyncio.Task[None]]]:
    staying: list[asyncio.Task[None]] = []
    doors = asyncio.Semaphore(AT_ONCE)
    executors = [EchoExecutor(balancer, token, f"box-{number}") for number in range(count)]

    async def begin(executor: EchoExecutor) -> None:
        async with doors:
            await executor.register()
            if not await executor.dial():
                raise AssertionError("the address was refused")
        staying.append(tasks.create_task(executor.stay()))

    await asyncio.gather(*map(begin, executors))
    return executors, staying


async def measure_alone(balancer: Balancer, token: str) -> dict[str, str]:
    """One stream with nothing else going on, against the same peers without a relay between them."""
    executor = EchoExecutor(balancer, token, "alone")
    await executor.register()
    await executor.dial()
    harness = AskingHarness(balancer, token, "alone")
    relayed = await _ask_often(harness)
    direct = await _ask_directly()
    found = {
        "round trip of 1 KB, through the relay (ms)": spread(relayed),
        "round trip of 1 KB, without it (ms)": spread(direct),
        "added by the relay (ms)": added(relayed, direct),
    }
    for name, size in (("records of 60 KiB", BULK_BYTES), ("records of 100 bytes", 100)):
        found[f"{name}, one way"] = await _send_bulk(executor, harness, size)
    return found


async def measure_across(nodes: list[Node], balancer: Balancer, token: str) -> dict[str, str]:
    """The same where NATS is between the executor's node and the harness's, against one node of the two."""
    one, other = nodes
    balancer.nodes = [one.place]
    executor = EchoExecutor(balancer, token, "across")
    await executor.register()
    await executor.dial()
    near = AskingHarness(balancer, token, "across")
    within = await _ask_often(near)
    if near.wire is not None:
        near.wire.transport.close()  # beside one that keeps up, one that is behind is cut off, not waited for
    balancer.nodes = [other.place]
    harness = AskingHarness(balancer, token, "across")
    across = await _ask_often(harness)
    return {
        "round trip of 1 KB, between two nodes over NATS (ms)": spread(across),
        "added by NATS, to what one node took just before (ms)": added(across, within),
        "records of 60 KiB, one way over NATS": await _send_bulk(executor, harness, BULK_BYTES),
    }


async def _ask_often(harness: AskingHarness) -> list[float]:
    for _ in range(ROUNDS):
        await harness.ask(1000)
    return harness.round_trips


async def _send_bulk(executor: EchoExecutor, harness: AskingHarness, size: int) -> str:
    frame = relayframes.data(harness.stream, 0, b"x" * size)
    harness.received = harness.received_bytes = 0
    harness.question = None
    began = time.perf_counter()
    while time.perf_counter() - began < BULK_S:
        wire = executor.send(frame)
        await wire.writable.wait()
        if harness.received % 50 == 0:
            await asyncio.sleep(0)
    took = time.perf_counter() - began
    rate, volume = harness.received / took, harness.received_bytes / took / 1e6
    return f"{rate:,.0f} a second, {volume:,.0f} MB/s"


async def _ask_directly() -> list[float]:
    """The same peers, connected to each other."""
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.open = transport, False

        def data_received(self, data: bytes) -> None:
            if not self.open:
                self.open = True
                self.transport.write(upgraded)  # type: ignore[attr-defined]
            elif len(data) > 8:  # a masked frame of 126..65535 bytes: the same without its mask
                self.transport.write(data[:1] + b"\x7e" + data[2:4] + data[8:])  # type: ignore[attr-defined]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    samples: list[float] = []
    answered = asyncio.Event()
    wire = Wire("/", "x", lambda _: answered.set())
    await loop.create_connection(lambda: wire, *server.sockets[0].getsockname())
    await wire.opened
    for number in range(ROUNDS):
        began = time.perf_counter()
        answered.clear()
        wire.send(relayframes.data("00000000-0000-4000-8000-000000000001", number, b"x" * 1000))
        await answered.wait()
        samples.append(time.perf_counter() - began)
    wire.transport.close()
    server.close()
    return samples


async def work(harness: AskingHarness, until: float) -> None:
    while time.perf_counter() < until:
        await harness.ask(200)
        await asyncio.sleep(random.uniform(0.02, 0.08))  # noqa: S311


async def measure(executors: int, nodes: int, streams: int, seconds: float, kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    with store_of(kind) as store:
        async with nodes_on(store, 1) as (_, balancer, token):
            found |= await measure_alone(balancer, token)
        async with nats_server() as nats, nodes_on(store, 2, nats.url) as (pair, balancer, token):
            found |= await measure_across(pair, balancer, token)
        async with nodes_on(store, nodes) as (running, balancer, token):
            found |= await _measure_many(running, balancer, token, executors, streams, seconds, store)
    return found


async def _measure_many(
    running: list[Node], balancer: Balancer, token: str, executors: int, streams: int, seconds: float,
    store: str,
) -> dict[str, str]:  # fmt: skip
    before = sum(node.pss_kb for node in running)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        made, staying = await gather_executors(balancer, token, executors, group)
        took = time.perf_counter() - began
        await asyncio.sleep(SETTLE_S)
        after, cpu = sum(node.pss_kb for node in running), sum(node.cpu_s for node in running)
        await asyncio.sleep(SETTLE_S * 2)
        idle = (sum(node.cpu_s for node in running) - cpu) / (SETTLE_S * 2)
        found = {
            f"registration of {executors:,} executors, {AT_ONCE} at once (s)": f"{took:.1f}",
            "register (ms)": spread([one.register_s for one in made]),
            "dial of an executor (ms)": spread([one.dial_s for one in made]),
            "memory of an idle executor in the relay (KB)": f"{(after - before) / executors:.1f}",
            "processor time of all nodes while nothing happens (of one core)": f"{idle:.1%}",
        }
        chosen = random.sample(made, streams)
        harnesses = [AskingHarness(balancer, token, one.environment) for one in chosen]
        doors = asyncio.Semaphore(AT_ONCE)

        async def begin(harness: AskingHarness) -> None:
            async with doors:
                await harness.connect()

        await asyncio.gather(*map(begin, harnesses))
        found["connect and dial of a harness (ms)"] = spread([one.connect_s for one in harnesses])
        until = time.perf_counter() + seconds
        at_work = [asyncio.create_task(work(one, until)) for one in harnesses]
        await asyncio.sleep(seconds / 3)
        if len(running) > 1:
            victim = running.pop(0)
            balancer.nodes.remove(victim.place)
            await victim.kill()
            await asyncio.sleep(seconds / 3)
            running.append(await start_node(store))
            balancer.nodes.append(running[-1].place)
        done, waiting = await asyncio.wait(at_work, timeout=max(0.0, until - time.perf_counter()) + ANSWER_S)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*done)
        gaps = [gap for one in harnesses for gap in one.gaps]
        asked, answered = (
            sum(each) for each in zip(*((one.asked, one.answered) for one in harnesses), strict=True)
        )
        found |= {
            f"questions of {streams} streams": f"{asked:,}",
            f"lost: not answered {ANSWER_S:g} s after the end": f"{asked - answered}",
            "answers to another question, or given twice": f"{sum(one.wrong for one in harnesses)}",
            "round trip while all are at work (ms)": spread(
                [t for one in harnesses for t in one.round_trips]
            ),
            "questions whose node was killed, until answered (s)": f"{len(gaps)}; " + spread(gaps, unit=1.0)
            if gaps
            else "none",
            "executors that dialled again": str(sum(one.dials > 1 for one in made)),
        }
        for task in staying:
            task.cancel()
    return found


def page(found: dict[str, str], arguments: argparse.Namespace) -> str:
    lines = [
        "# A relay under many executors",
        "",
        f"`python -m bench.relayscale --executors {arguments.executors} --nodes {arguments.nodes} "
        f"--streams {arguments.streams} --seconds {arguments.seconds:g} --store {arguments.store}`, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors, which executors, harnesses, nodes "
        "and the store share. Memory is of the processes (PSS), without what the kernel keeps for sockets.",
        "A third into the run one node is killed, a third later another is added.",
        "",
        "| | |",
        "|---|---:|",
        *(f"| {name} | {value} |" for name, value in found.items()),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executors", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="postgres")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    found = asyncio.run(
        measure(arguments.executors, arguments.nodes, arguments.streams, arguments.seconds, arguments.store)
    )
    text = page(found, arguments)
    print(text)
    if arguments.record is not None:
        arguments.record.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
