"""Examines an environment: connects to it, runs its doctor, and tries its sandbox.

HOME/environments/NAME.json   the newest facts, for commands that list environments without connecting to any
"""

import asyncio
import re
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.agents.fleet.facts import MAX_WORDS, EnvironmentFacts, follow_on, read_facts
from holdfast.client.environment import Environment
from holdfast.client.environments import FILE, Environments
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError
from holdfast.local.atomicfile import replace_file
from holdfast.local.shown import show_text

LOOK_S: Final = 30.0  # to connect and run the doctor, on a busy machine
FOLDER: Final = "environments"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOOK: Final = r"""getconf _NPROCESSORS_ONLN 2>/dev/null || echo 0
head -n 5 /proc/meminfo 2>/dev/null
echo --
if command -v holdfast >/dev/null; then holdfast doctor --json; fi
exit 0"""


async def look(home: Path, name: str, before: EnvironmentFacts | None, now: float) -> EnvironmentFacts:
    """Connect to an environment of this home and collect facts. An unreachable machine is a fact as well.

    Raises:
        UsageError: there is no such environment, or its file is invalid.
    """
    file = home / FILE
    listed = Environments.load(file if file.exists() else None)
    listed.entry(name)
    try:
        async with asyncio.timeout(LOOK_S):
            environment = await listed.open(name)
            try:
                found = await look_around(environment, now)
            finally:
                await environment.aclose()
    except TimeoutError:
        found = EnvironmentFacts(at=now, reached=False, since=now, error=f"no answer within {LOOK_S:g} s")
    except HoldfastError as exc:
        found = EnvironmentFacts(at=now, reached=False, since=now, error=show_text(str(exc))[:MAX_WORDS])
    return follow_on(before, found)


async def look_around(environment: Environment, now: float) -> EnvironmentFacts:
    """Collect what a connected machine reports about itself.

    Raises:
        HoldfastError: the connection is lost.
    """
    info = environment.info
    process = await environment.start(["/bin/sh", "-c", _LOOK], cwd="/")
    done = await process.wait()
    backend, unconfined = await _try_sandbox(environment)
    found = read_facts(done.stdout.decode("utf-8", "replace"))
    doubts = unconfined or found.unconfined
    return msgspec.structs.replace(
        found,
        at=now,
        since=now,
        system=show_text(info.platform_os or "")[:MAX_WORDS],
        version=show_text(info.executor_version or "")[:MAX_WORDS],
        backend="" if doubts else backend,
        unconfined=doubts,
    )


async def _try_sandbox(environment: Environment) -> tuple[str, str]:
    """Return the sandbox backend there, or why none worked."""
    try:
        process = await environment.start(["/bin/sh", "-c", ":"], cwd="/", policy=Policy.read_only())
        done = await process.wait()
    except HoldfastError as exc:
        if exc.retryable:
            raise
        return "", show_text(str(exc))[:MAX_WORDS]
    if process.enforcement is None:
        return "", "its server does not say what it enforces"
    if done.code != 0:
        return "", "a confined command did not run"
    if process.enforcement.missing:
        return "", show_text(f"its sandbox lacks {', '.join(process.enforcement.missing)}")[:MAX_WORDS]
    return show_text(process.enforcement.backend)[:MAX_WORDS], ""


def read_known(home: Path, name: str) -> EnvironmentFacts | None:
    """Return the newest stored facts; None if there are none."""
    if not _NAME.fullmatch(name):
        return None
    try:
        return decoding.decode((home / FOLDER / f"{name}.json").read_bytes(), EnvironmentFacts)
    except (OSError, msgspec.MsgspecError):
        return None


def keep(home: Path, name: str, facts: EnvironmentFacts) -> None:
    """Store the facts. Raises OSError if the file cannot be written."""
    (home / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(home / FOLDER / f"{name}.json", msgspec.json.encode(facts), durable=False)
