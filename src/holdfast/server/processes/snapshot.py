"""Shell snapshots of one session: start-up files run once for a scope, later commands replay the result."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from holdfast.server.processes import shellstate
from holdfast.wire.environment import ShellInfo
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.processes import EnvPolicy, StartParams

MAX_ENTRIES: Final = 16  # each holds up to CAPTURE_BYTES
CAPTURE_BYTES: Final = 512 * 1024
CAPTURE_S: Final = 10.0
RETRY_S: Final = 60.0  # a broken or slow start-up file must not be paid for twice on every command

_Key: TypeAlias = tuple[str, ShellInfo, str, EnvPolicy | None, SandboxContext | None]


class Capture(Protocol):
    """Run a command, confined like the start it is for, without input; its output, or None on any failure."""

    async def __call__(
        self, argv: list[str], cwd: str, env: dict[str, str], stdout_limit: int, timeout_s: float
    ) -> bytes | None: ...


class Prepared(NamedTuple):
    """What to start. `state`, if any, must be readable as descriptor `shellstate.STATE_FD` of the child."""

    argv: list[str]
    env: dict[str, str]
    state: bytes | None


@dataclass(slots=True)
class _Entry:
    """One scope. Concurrent starts share a capture by its lock; a cancelled one leaves it to the next."""

    key: _Key
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    taken: shellstate.Snapshot | None = None
    retry_at: float = float("-inf")


class ShellSnapshots:
    """The snapshots of one session, least recently used last to stay."""

    def __init__(self, capture: Capture, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._capture = capture
        self._clock = clock
        self._entries: list[_Entry] = []  # a list: keys hold maps and cannot be hashed, and there are few

    async def apply(
        self,
        params: StartParams,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        capture: Capture | None = None,
    ) -> Prepared:
        """The command as it is to be started; unchanged if it has no snapshot or none can be taken.

        `env` is the child's final environment, `params.env` what the request itself asked for in it.
        `capture` must confine start-up files as the command will be.

        Raises:
            UsageError: the snapshot request makes no sense.
        """
        unchanged = Prepared(argv, env, None)
        request = params.shell_snapshot
        if request is None or not shellstate.applies(request, argv, params.env):
            return unchanged
        replay = shellstate.replay_argv(request.shell.name, argv)
        if replay is None:
            return unchanged
        entry = self._entry((request.scope_id, request.shell, cwd, params.env_policy, params.sandbox))
        async with entry.lock:
            if entry.taken is None and self._clock() >= entry.retry_at:
                entry.taken = await self._take(
                    capture or self._capture, request.shell.name, argv, cwd, env, params.env_policy
                )
                entry.retry_at = self._clock() + RETRY_S
        if entry.taken is None:
            return unchanged
        return Prepared(replay, shellstate.replayed(env, params.env, entry.taken), entry.taken.state)

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
        self,
        capture: Capture,
        name: str,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        policy: EnvPolicy | None,
    ) -> shellstate.Snapshot | None:
        nonce = secrets.token_hex(16)
        capture_argv = shellstate.capture_argv(name, argv, nonce)
        output = await capture(capture_argv, cwd, env, CAPTURE_BYTES, CAPTURE_S)
        dump = shellstate.parse(output, nonce) if output is not None else None
        return shellstate.snapshot(name, dump, env, policy) if dump is not None else None
