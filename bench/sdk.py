"""The same work through the client that users have, held against the raw connection to the same server."""

import asyncio
import shutil
import time
from collections.abc import Coroutine

import holdfast
from bench.client import Failed
from bench.measures import MS, ROUND_WITHIN_S, Contest


def client_run(contest: Contest) -> list[float]:
    """`env.run` of /bin/true, one at a time."""
    return finished(runs(contest))


def client_stream(contest: Contest) -> list[float]:
    """Output in MB/s through `process.stdout`, from the start until the iteration ends."""
    return finished(streamed(contest))


def finished(work: Coroutine[None, None, list[float]], *, within_s: float = ROUND_WITHIN_S) -> list[float]:
    async def bounded() -> list[float]:
        async with asyncio.timeout(within_s):
            return await work

    try:
        return asyncio.run(bounded())
    except holdfast.HoldfastError as error:
        raise Failed(f"the client gave up: {error}") from error


async def runs(contest: Contest) -> list[float]:
    plan, samples = contest.plan, []
    async with holdfast.connect(contest.server.url) as env:
        for _ in range(plan.warm + plan.starts):
            began = time.perf_counter()
            result = await env.run(["/bin/true"])
            samples.append((time.perf_counter() - began) * MS)
            if result.code != 0:
                raise Failed(f"/bin/true ended with {result.code}")
    return samples[plan.warm :]


async def streamed(contest: Contest) -> list[float]:
    size, received = contest.plan.stream_bytes, 0
    argv = [shutil.which("head") or "/usr/bin/head", "-c", str(size), "/dev/zero"]
    async with holdfast.connect(contest.server.url) as env:
        began = time.perf_counter()
        process = await env.start(argv, env={})
        async for chunk in process.stdout:
            received += len(chunk)
        took = time.perf_counter() - began
    if received != size:
        raise Failed(f"{received} bytes of output came, {size} were written")
    return [size / took / 1e6]
