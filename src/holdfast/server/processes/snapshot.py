"""Shell snapshots of one session: start-up files run once per scope, later commands restore the result."""

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from holdfast.confine.launch import LauncherClient
from holdfast.confine.loopback import Services
from holdfast.confine.starts import Command, Confinement, Exit
from holdfast.errors import HoldfastError
from holdfast.server.processes import shellstate
from holdfast.wire.environment import ShellInfo
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.processes import EnvPolicy, StartParams

log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 16  # each holds up to CAPTURE_BYTES
CAPTURE_BYTES: Final = 512 * 1024
CAPTURE_S: Final = 10.0
RETRY_S: Final = 60.0  # a broken or slow start-up file must not delay every command twice

# Runs a command with its directory, environment, limits of output and time; None after any failure.
Capture: TypeAlias = Callable[[list[str], str, dict[str, str], int, float], Awaitable[bytes | None]]
_Key: TypeAlias = tuple[str, ShellInfo, str, EnvPolicy | None, SandboxContext | None]


class Prepared(NamedTuple):
    """What to start. `state`, if any, must be readable as descriptor `shellstate.STATE_FD` of the child."""

    argv: list[str]
    env: dict[str, str]
    state: bytes | None


@dataclass(slots=True)
class _Entry:
    """One scope.

    Its lock lets concurrent starts share a capture; after a cancelled one the next start captures.
    """

    key: _Key
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    taken: shellstate.Snapshot | None = None
    retry_at: float = float("-inf")


class ShellSnapshots:
    """The snapshots of one session; the least recently used one is dropped first."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: list[_Entry] = []  # a list: keys contain maps and cannot be hashed, and there are few

    async def apply(self, params: StartParams, cwd: str, env: dict[str, str], capture: Capture) -> Prepared:
        """Return the command to start; unchanged if it requests no snapshot.

        If no snapshot can be taken, start-up files run as usual, or not at all if the policy excludes
        anything that they might export. `env` is the child's final environment, `params.env` the part that
        the request set. `capture` must confine start-up files in the same way as the command.

        Raises:
            UsageError: the snapshot request is invalid.
        """
        argv = params.argv
        unchanged = Prepared(argv, env, None)
        request = params.shell_snapshot
        if request is None or not shellstate.applies(request, argv):
            return unchanged
        fallback = unchanged
        if shellstate.withholds(params.env_policy):
            fallback = Prepared(*shellstate.without_startup(request.shell.name, argv, env), None)
        replay = shellstate.replay_argv(request.shell.name, argv)
        if replay is None or not shellstate.can_share(params.env):
            return fallback
        entry = self._entry((request.scope_id, request.shell, cwd, params.env_policy, params.sandbox))
        async with entry.lock:
            if entry.taken is None and self._clock() >= entry.retry_at:
                entry.taken = await _take(capture, request.shell.name, argv, cwd, env, params.env_policy)
                entry.retry_at = self._clock() + RETRY_S
        if entry.taken is None:
            if fallback is not unchanged:
                log.warning("no shell snapshot: the command runs without start-up files")
            return fallback
        return Prepared(replay, shellstate.replay_env(env, params.env, entry.taken), entry.taken.state)

    def _entry(self, key: _Key) -> _Entry:
        entry = next((entry for entry in self._entries if entry.key == key), None)
        if entry is None:
            entry = _Entry(key)
        else:
            self._entries.remove(entry)
        self._entries.append(entry)
        del self._entries[:-MAX_ENTRIES]
        return entry


async def _take(
    capture: Capture, name: str, argv: list[str], cwd: str, env: dict[str, str], policy: EnvPolicy | None
) -> shellstate.Snapshot | None:
    nonce = secrets.token_hex(16)
    capture_argv = shellstate.capture_argv(name, argv, nonce)
    output = await capture(capture_argv, cwd, env, CAPTURE_BYTES, CAPTURE_S)
    dump = shellstate.parse(output, nonce) if output is not None else None
    return shellstate.snapshot(name, dump, env, policy) if dump is not None else None


async def read_output(
    launcher: LauncherClient,
    owner: int,
    confinement: Confinement | None,
    services: Services | None,
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    stdout_limit: int,
    timeout_s: float,
) -> bytes | None:
    """Return the standard output of a helper command without input; None after any failure."""
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    read, write = os.pipe2(os.O_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    launch_id = 0
    try:
        async with asyncio.timeout(timeout_s):
            started = await launcher.start(
                Command(tuple(argv), argv[0], cwd, env),
                owner=owner,
                streams=(null, write, null),
                on_exit=lambda end: None if ended.done() else ended.set_result(end),
                confinement=confinement,
                services=services,
            )
            launch_id = started.id
            os.close(write)
            write = -1
            output = await _read_all(read, stdout_limit)
            if output is not None and (await ended).code == 0:
                return output
    except (HoldfastError, TimeoutError, OSError):
        pass  # after any failure the caller continues without a snapshot
    finally:
        if launch_id and not ended.done():
            launcher.signal(launch_id, signal.SIGKILL)
        for fd in (read, write, null):
            if fd >= 0:
                os.close(fd)
    return None


async def _read_all(fd: int, limit: int) -> bytes | None:
    """Return everything until end of file; None once it is more than `limit` bytes."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    done: asyncio.Future[bytes | None] = loop.create_future()
    parts: list[bytes] = []

    def on_readable() -> None:
        data = os.read(fd, 64 * 1024)
        parts.append(data)
        if not done.done() and (not data or sum(map(len, parts)) > limit):
            done.set_result(None if data else b"".join(parts))

    loop.add_reader(fd, on_readable)
    try:
        return await done
    finally:
        loop.remove_reader(fd)
