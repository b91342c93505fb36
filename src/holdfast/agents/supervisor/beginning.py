"""The process of a worker: starting and adopting it, its input, and what its server says it enforces."""

import contextlib
import functools
from importlib.util import find_spec
from pathlib import Path

from holdfast.agents.evidence.evidence import Want
from holdfast.agents.worker.answering import ask_about_host, settle_host
from holdfast.agents.worker.book import PROCESS, Record
from holdfast.agents.worker.explaining import Explaining, held, release
from holdfast.agents.worker.launching import PreparedStart
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.client.environment import Environment
from holdfast.client.process import Process
from holdfast.errors import HoldfastError
from holdfast.local.atomicfile import write_below
from holdfast.sandbox.policy.hostwish import ASK_S
from holdfast.sandbox.policy.secretwish import KEYS


async def start_process(
    environment: Environment, worker: FollowedWorker, ready: PreparedStart, *, traced: bool
) -> Process:
    record = worker.record
    return await environment.start(
        held(ready.argv, ready.environment) if traced else ready.argv,
        cwd=record.cwd,
        env=None if record.host is not None else ready.environment,
        more_env=ready.environment,
        policy=ready.policy,
        tty=ready.tty,
        stdin=ready.stdin is not None or record.acp,
        process_id=PROCESS,
        watch=record.watch,
        limits=ready.limits,
        commands=ready.commands,
        decide=functools.partial(ask_about_host, worker) if ready.policy.wish.hosts.ask_s else None,
    )


async def adopt_process(environment: Environment, worker: FollowedWorker) -> Process:
    """Adopt the process of a worker after a supervisor restart or a lost link. Raises HoldfastError."""
    record = worker.record
    for asked in worker.asked():
        if asked.want is Want.NETWORK:  # the waiting connection was refused meanwhile
            settle_host(worker, asked.request, "nobody was there to ask")
    return await environment.adopt(
        record.process_id or PROCESS,
        tty=record.tty,
        watch=record.watch,
        decide=functools.partial(ask_about_host, worker) if record.ask_s else None,
        decide_s=record.ask_s or ASK_S,
    )


async def give_input(process: Process, ready: PreparedStart) -> None:
    if ready.stdin is not None:
        with contextlib.suppress(HoldfastError):  # it ended without reading all of it, which is allowed
            await process.write(ready.stdin)
            await process.close_stdin()


def note_enforcement(record: Record, process: Process, ready: PreparedStart) -> None:
    """Note in the record what its server enforces, and what it does not."""
    if process.watch is not None and not process.watch.on:
        record.unwatched = process.watch.why
    if process.enforcement is not None:
        record.backend = process.enforcement.backend
        record.weakened = [*process.enforcement.missing, *process.enforcement.weakened]
        told = process.enforcement.network
        record.by_name = [line for line in told if not line.startswith(KEYS)]
        record.by_name += [f"preset {origin}" for origin in ready.presets]
        record.keys = [line for line in told if line.startswith(KEYS)]
    record.keys += ready.entering
    if ready.reach.lost:
        record.weakened.append(f"it has the whole network, and not its provider's hosts: {ready.reach.lost}")


def prepare_tracing(record: Record, ready: PreparedStart) -> Explaining | None:
    if not record.trace:
        return None
    made = Explaining(ready.policy, cwd=record.cwd, environment=ready.environment)
    record.untraced = made.off
    return made if made.off is None else None


async def note_lost_trace(record: Record, process: Process) -> None:
    """Note that strace ended with the previous supervisor; continue the worker, which may be stopped."""
    record.untraced = record.untraced or "the supervisor was started anew, and strace ended with the old one"
    if record.pid is not None:
        release(record.pid)
    else:
        with contextlib.suppress(HoldfastError):
            await process.signal("SIGCONT")


def find_unkept() -> str:
    """Return why keys cannot stay outside of workers on this machine; empty if they can."""
    if find_spec("cryptography") is not None:
        return ""
    return "the extra `keys` is not installed: pip install 'holdfast-agents[keys]'"


def write_files(ready: PreparedStart) -> None:
    for path, text in ready.files.items():
        write_below(ready.state, Path(path).relative_to(ready.state).parts, text.encode())
