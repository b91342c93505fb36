"""Probe what this host lets a sandbox do, by trying it in throw-away processes (`stages.py`)."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import holdfast
from holdfast.sandbox.host.hostfacts import Fact, HostFacts, fact_of, host_facts

STAGE_S: Final = 0.5  # a stage takes a few milliseconds; one that takes this long hangs
STARTUP_S: Final = 0.8  # added to that: an interpreter starts in 50 ms, on a busy machine in ten times that
_LOOK_AGAIN_S: Final = 0.002
_LOOKS: Final = 1000  # it ends within the first few; later only on an extremely busy machine
_MAX_OUTPUT: Final = 256 * 1024  # far more than all lines; a larger output does not come from our child
# Started like the launcher: small, whatever is installed or configured.
_BOOT: Final = (
    f"import sys; sys.path.append({str(Path(holdfast.__file__).parent.parent)!r}); "
    "from holdfast.sandbox.host.stages import main; main()"
)


async def probe(environ: Mapping[str, str] = os.environ, *, stage_s: float = STAGE_S) -> HostFacts:
    """Probe this host within `STARTUP_S` plus `stage_s`; leave no process behind.

    A stage that hangs is a fact with ETIMEDOUT.
    """
    facts: dict[str, Fact] = {}
    readings: dict[str, str | None] = {}
    for line in (await _run_stages(environ.get("PATH", os.defpath), stage_s)).splitlines():
        try:
            kind, *told = json.loads(line)
        except ValueError:
            break  # the last line of a child that was killed
        if kind == "names":
            facts = {name: Fact(name, works=None, detail="not tried in time") for name in told[0]}
        elif kind == "stage":
            facts[told[0]] = fact_of(*told)
        else:
            readings[told[0]] = told[1]
    return host_facts(
        tuple(facts.values()),
        readings,
        uid=os.geteuid(),
        release=os.uname().release,
        variable=environ.get("container", ""),
    )


async def _run_stages(path: str, stage_s: float) -> bytes:
    """The output, up to the time limit, of the process that tries everything.

    Uses no threads and no signals, so it also works where a filter denies both to an event loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    said = bytearray()
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own code; spawned at once, awaited below
        [sys.executable, "-I", "-S", "-c", _BOOT, path, str(stage_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    )
    if process.stdout is None:
        raise AssertionError("asked for a pipe")
    fd = process.stdout.fileno()

    def hear() -> None:
        data = os.read(fd, 65536)
        said.extend(data)
        if (not data or len(said) > _MAX_OUTPUT) and not ended.done():
            ended.set_result(None)

    loop.add_reader(fd, hear)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTUP_S + stage_s):
                await ended
    finally:
        loop.remove_reader(fd)
        process.stdout.close()
        process.terminate()  # on SIGTERM it ends its own children; on SIGKILL it could not
        await _reap(process)
    return bytes(said)


async def _reap(process: "subprocess.Popen[bytes]") -> None:
    for _ in range(_LOOKS):
        if process.poll() is not None:
            return
        await asyncio.sleep(_LOOK_AGAIN_S)
    process.kill()  # it hangs in the kernel, and a process that waits for it would hang too
