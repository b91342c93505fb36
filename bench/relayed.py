"""What a relay and its Noise channel cost a user: the same work directly and through `holdfast relay`.

python -m bench.relayed [--record docs/records/relayed.md]

Both executors, ours and the real codex's, do the same work for our client, in turns. Whatever takes part runs
on this machine: client, relay and executor share its processors.
"""

import argparse
import asyncio
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import holdfast
from bench.report import quantile
from bench.servers import Spec, find_codex, ours, reference, running
from holdfast.client.environment import Environment
from holdfast.client.environments import Environments
from holdfast.wire import noise
from tests.support.relays import RelayProcess, relay_process, remote_executor

ASKS: Final = 600
WARM: Final = 60
STREAM_BYTES: Final = 256 * 2**20
FILE_BYTES: Final = 64 * 2**20
ROUNDS: Final = 5
CIPHER_MESSAGE_BYTES: Final = 4 * 2**20
MB: Final = 1e6
MS: Final = 1000.0


async def ask(env: Environment) -> list[float]:
    """Seconds of a small question each."""
    samples = []
    for _ in range(WARM + ASKS):
        began = time.perf_counter()
        await env.files.stat("/usr/bin/env")
        samples.append(time.perf_counter() - began)
    return samples[WARM:]


async def stream(env: Environment) -> list[float]:
    """Bytes a second of a command's output."""
    began, received = time.perf_counter(), 0
    process = await env.start([shutil.which("head") or "head", "-c", str(STREAM_BYTES), "/dev/zero"], env={})
    async for chunk in process.stdout:
        received += len(chunk)
    if received != STREAM_BYTES:
        raise AssertionError(f"{received} bytes came")
    return [received / (time.perf_counter() - began)]


def read_file(path: Path) -> Callable[[Environment], Awaitable[list[float]]]:
    """Bytes a second of a file that is read whole."""

    async def read(env: Environment) -> list[float]:
        began = time.perf_counter()
        data = await env.files.read(path)
        if len(data) != FILE_BYTES:
            raise AssertionError(f"{len(data)} bytes came")
        return [len(data) / (time.perf_counter() - began)]

    return read


@asynccontextmanager
async def direct(spec: Spec, home: Path) -> AsyncIterator[Environment]:
    with running(spec, home) as server:
        async with holdfast.connect(server.url) as env:
            yield env


@asynccontextmanager
async def relayed(argv: list[str], relay: RelayProcess, name: str, home: Path) -> AsyncIterator[Environment]:
    token = relay.call("token", "add", name)
    connected = relay.events("executor.connected")
    variables = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": relay.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": name,
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": token,
        "HOME": str(home),
    }
    async with remote_executor(argv, home, relay.url, name, token):
        await relay.until("executor.connected", connected + 1)
        async with Environments.load(environ=variables) as environments:
            yield await environments.get()


def seal_and_open() -> float:
    """Bytes a second of the channel alone, both of its ends in this thread."""
    keys, place = noise.SYSTEM.keys(), noise.prologue("box", "registration", "stream")
    client = noise.Handshake(noise.Role.INITIATOR, noise.SYSTEM.keys(), place, peer=keys.public)
    executor = noise.Handshake(noise.Role.RESPONDER, keys, place)
    executor.read(client.write())
    client.read(executor.write())
    sender, receiver = executor.finish(), client.finish()
    message, total = bytes(CIPHER_MESSAGE_BYTES), 0
    began = time.perf_counter()
    while time.perf_counter() - began < 2.0:
        for record in sender.seal(message):
            total += sum(map(len, receiver.open(record.sealed)))
    return total / (time.perf_counter() - began)


async def measure() -> list[str]:
    """The rows of the page."""
    codex, python = find_codex(None), sys.executable
    async with AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir="/var/tmp"))
        )
        large = folder / "large"
        large.write_bytes(os.urandom(FILE_BYTES))
        relay = await stack.enter_async_context(relay_process(folder / "relay"))
        box = [python, "-m", "holdfast", "serve"]
        ways = {
            "ours, direct": direct(ours(python), folder / "a"),
            "ours, relayed": relayed(box, relay, "ours", folder / "b"),
            "codex, direct": direct(reference(codex), folder / "c"),
            "codex, relayed": relayed([codex, "exec-server"], relay, "codex", folder / "d"),
        }
        open_ways = {name: await stack.enter_async_context(way) for name, way in ways.items()}
        works = {"ask": ask, "stream": stream, "read": read_file(large)}
        found: dict[tuple[str, str], list[float]] = {(name, work): [] for name in ways for work in works}
        for _ in range(ROUNDS):
            for name, env in open_ways.items():
                for work, do in works.items():
                    found[name, work] += await do(env)
    rows = []
    for name in ways:
        asked = found[name, "ask"]
        stream_mb, file_mb = (statistics.median(found[name, work]) / MB for work in ("stream", "read"))
        low, high = (quantile(asked, share) * MS for share in (0.5, 0.99))
        rows.append(f"| {name} | {low:.2f} | {high:.2f} | {stream_mb:.0f} | {file_mb:.0f} |")
    added = quantile(found["ours, relayed", "ask"], 0.5) - quantile(found["ours, direct", "ask"], 0.5)
    cipher = statistics.median(seal_and_open() for _ in range(3))
    return [
        *rows,
        "",
        f"Added to a question by relay and channel, both ends ours: {added * MS:.2f} ms at p50 (bar: 1.5).",
        f"The channel alone, sealed and opened by one thread: {cipher / MB:.0f} MB/s.",
    ]


def page(rows: list[str]) -> str:
    return "\n".join(
        [
            "# What a relay costs",
            "",
            f"`python -m bench.relayed`, Python {platform.python_version()}, {os.cpu_count()} processors, "
            "which client, relay and executor share. The client is ours.",
            "",
            f"A question is `fs/getMetadata` ({ROUNDS * ASKS:,} each); a stream is the output of a command "
            f"({STREAM_BYTES >> 20} MiB), a file has {FILE_BYTES >> 20} MiB; medians of {ROUNDS}, in turns.",
            "",
            "| executor | question, p50 (ms) | p99 (ms) | stream (MB/s) | file (MB/s) |",
            "|---|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    text = page(asyncio.run(measure()))
    print(text)
    if arguments.record is not None:
        arguments.record.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
