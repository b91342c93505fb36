"""Environments by name, from a file or a variable; each connects when it is first used.

Callers that ask for the same environment at the same time share one attempt. An attempt that failed for a
transient reason is repeated on the next use. A lost session is replaced on the next use by a new one, which
does not have the processes of the old one.
"""

import asyncio
import copy
import enum
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from holdfast.client.connection import Dialer
from holdfast.client.environment import Environment, connect
from holdfast.client.environmentfile import (
    LOCAL,
    TIMEOUT_S,
    EnvironmentEntry,
    EnvironmentList,
    check_token,
    from_noise_variables,
    from_toml,
    from_variable,
)
from holdfast.client.links.target import CommandTarget, NoiseMemory, NoiseTarget, Target, parse_target
from holdfast.client.recovery import LinkState, worth_retrying
from holdfast.client.session import ClientSession
from holdfast.errors import ConnectionLost, HoldfastError, SessionLost, UsageError
from holdfast.local.linux import require_linux
from holdfast.rendezvous.credentials import check_header

FILE: Final = "environments.toml"
_HERE: Final = (sys.executable, "-P", "-m", "holdfast", "serve", "--listen", "stdio")


def own_file(environ: Mapping[str, str] | None = None) -> Path:
    """The path of the file that `holdfast environment add` writes."""
    environ = os.environ if environ is None else environ
    home = environ.get("HOLDFAST_HOME") or os.path.join(environ.get("HOME") or "~", ".holdfast")
    return Path(home).expanduser() / FILE


class Condition(enum.StrEnum):
    """The state that the next use of an environment meets."""

    READY = "ready"
    STARTING = "starting"
    RECOVERING = "recovering"
    DISCONNECTED = "disconnected"  # never used, or lost: the next use connects
    FAILED = "failed"  # permanently


@dataclass(frozen=True, slots=True)
class Readiness:
    """`error` is the last failure, if there was one."""

    condition: Condition
    error: HoldfastError | None = None


class Environments:
    """Environments by name, created with `load`. As a context manager it closes at the end what it opened."""

    def __init__(self, listed: EnvironmentList) -> None:
        entries = [EnvironmentEntry(LOCAL, argv=_HERE)] if listed.include_local else []
        self._named = {entry.id: _Named(entry) for entry in (*entries, *listed.entries)}
        self._default = listed.default
        self._replaced: list[_Named] = []

    @classmethod
    def load(
        cls, path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
    ) -> "Environments":
        """Load from the file at `path`; without one from the first that exists of
        `$HOLDFAST_HOME/environments.toml`, `CODEX_EXEC_SERVER_NOISE_*` and `$CODEX_HOME/environments.toml`,
        otherwise from `CODEX_EXEC_SERVER_URL`. This connects nothing.

        Raises:
            UsageError: the file cannot be read or is invalid.
        """
        environ = os.environ if environ is None else environ
        if path is not None:
            return cls(_read(Path(path)))
        for variable, folder in (("HOLDFAST_HOME", ".holdfast"), ("CODEX_HOME", ".codex")):
            noise = from_noise_variables(environ) if variable == "CODEX_HOME" else None
            if noise is not None:  # the reference prefers these variables to its file
                return cls(noise)
            home = environ.get(variable) or os.path.join(environ.get("HOME") or "~", folder)
            file = Path(home).expanduser() / FILE
            if file.exists():
                return cls(_read(file))
        return cls(from_variable(environ.get("CODEX_EXEC_SERVER_URL")))

    def entry(self, name: str) -> EnvironmentEntry:
        """The configuration of this environment.

        Raises:
            UsageError: there is no environment of this name.
        """
        return self._find(name).entry

    @property
    def ids(self) -> tuple[str, ...]:
        """Every name: `local` first, then in the order of the file."""
        return tuple(self._named)

    @property
    def default(self) -> str | None:
        """The name that is used when none is given, or None."""
        return self._default

    async def get(self, name: str | None = None) -> Environment:
        """Return the environment of this name, connected; without a name the default. Do not close it.

        The returned environment stays valid when another one is `put` under its name; only later calls get
        the new one.

        Raises:
            UsageError: there is none of this name, or its address is invalid.
            HoldfastError: it cannot be reached; see `connect`.
        """
        return await self._find(name).get()

    async def open(self, name: str | None = None, *, resume: str | None = None) -> Environment:
        """Open a separate session with the environment of this name. The caller closes or leaves it.

        `resume` is the `session_id` of a session that was left; a child process cannot be resumed.

        Raises:
            UsageError: there is no such environment, or its address is invalid.
            HoldfastError: it cannot be reached, or has no such session; see `Environment.open`.
        """
        entry = self._find(name).entry
        target = _target(entry, NoiseMemory())
        session = ClientSession(Dialer(target, entry.connect_timeout_s, entry.initialize_timeout_s))
        await session.open(resume)
        return Environment(session)

    def start(self, *names: str) -> None:
        """Begin to connect in the background; without names to every environment that has an address.

        Failures are in `readiness`, and raised to the caller that uses the environment.
        """
        chosen = [self._find(name) for name in names] or [
            one for one in self._named.values() if one.entry.url or one.entry.registry_url
        ]
        for named in chosen:
            named.start()

    def readiness(self) -> dict[str, Readiness]:
        """Return the state of each environment. Starts nothing, waits for nothing and asks nothing."""
        return {name: named.readiness() for name, named in self._named.items()}

    async def put(
        self,
        name: str,
        url: str,
        *,
        token: str | None = None,
        connect_timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Add an environment, or replace the one of this name, and begin to connect to it.

        Callers that hold the old one keep it, with everything that runs there, until `aclose`. If no caller
        got it, it is closed now.

        Raises:
            UsageError: the name or address is invalid, or the token would be readable on the way.
        """
        address = url.strip()
        if not name or name == LOCAL:
            raise UsageError(f"{name or 'nothing'} is no name for an environment that is added")
        if not address or address.lower() == "none":
            raise UsageError("an environment needs an address")
        if token is not None:
            check_token(address, token)
        parse_target(address, token)
        old = self._named.get(name)
        self._named[name] = _Named(
            EnvironmentEntry(name, address, token, connect_timeout_s=connect_timeout_s)
        )
        self._named[name].start()
        self._replaced = [named for named in self._replaced if named.held]
        if old is None:
            return
        if old.held:
            self._replaced.append(old)
        else:
            await old.aclose()

    async def aclose(self) -> None:
        """Cancel every attempt and close every session; their processes are ended."""
        await asyncio.gather(*(named.aclose() for named in (*self._named.values(), *self._replaced)))

    async def __aenter__(self) -> "Environments":
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Environments {', '.join(self.ids) or 'none'}; default {self._default or 'none'}>"

    def _find(self, name: str | None) -> "_Named":
        wanted = self._default if name is None else name
        known = ", ".join(self.ids) or "none"
        if wanted is None:
            raise UsageError("there is no default environment", remedy=f"name one of: {known}")
        if wanted not in self._named:
            raise UsageError(
                f"there is no environment {wanted!r}" if not wanted else f"there is no environment {wanted}",
                remedy=f"name one of: {known}; or add it: holdfast environment add {wanted or 'NAME'} ssh://HOST",
            )
        return self._named[wanted]


@asynccontextmanager
async def reach(where: str) -> AsyncIterator[Environment]:
    """Yield the environment of that name or at that address, for as long as the block lasts."""
    if "://" in where:
        async with connect(where) as environment:
            yield environment
        return
    async with Environments.load() as environments:
        yield await environments.get(where)


class _Named:
    """One environment, its current session and its last failure."""

    def __init__(self, entry: EnvironmentEntry) -> None:
        self.entry = entry
        self._environment: Environment | None = None
        self._attempt: asyncio.Task[Environment] | None = None
        self._error: HoldfastError | None = None
        self._final = False
        self._given = False
        self._memory = NoiseMemory()

    @property
    def held(self) -> bool:
        """Whether a caller got the session that is alive here, or is waiting for it."""
        return self._given and self._live() is not None

    async def get(self) -> Environment:
        self._given = True
        live = self._live()
        if live is not None:
            return live
        if self._final and self._error is not None:
            raise copy.copy(self._error)
        attempt = self.start()
        await asyncio.wait([attempt])  # a caller that stops waiting does not cancel it for the others
        if attempt.cancelled():
            raise SessionLost("the environment was closed")
        return attempt.result()

    def start(self) -> "asyncio.Future[Environment]":
        """Return the attempt under way, or start one.

        A session that is alive is the result of a new one too.
        """
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
            self._attempt.add_done_callback(self._end_attempt)
        return self._attempt

    def readiness(self) -> Readiness:
        if self._attempt is not None:
            return Readiness(Condition.STARTING, self._error)
        if self._environment is None:
            return Readiness(Condition.FAILED if self._final else Condition.DISCONNECTED, self._error)
        match self._environment.state:
            case LinkState.CONNECTED:
                return Readiness(Condition.READY)
            case LinkState.RECOVERING:
                return Readiness(Condition.RECOVERING, ConnectionLost("the environment is recovering"))
            case LinkState.FAILED:
                return Readiness(Condition.DISCONNECTED, self._environment.failure)

    async def aclose(self) -> None:
        self._final, self._error = True, SessionLost("the environments were closed")
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)
        if self._environment is not None:
            await self._environment.aclose()

    def _live(self) -> Environment | None:
        ours = self._environment
        return None if ours is None or ours.state is LinkState.FAILED else ours

    async def _connect(self) -> Environment:
        live, old = self._live(), self._environment
        if live is not None:
            return live
        if old is not None:
            await old.aclose()
        target: Target | None = None
        try:
            target = _target(self.entry, self._memory)
            session = ClientSession(
                Dialer(target, self.entry.connect_timeout_s, self.entry.initialize_timeout_s)
            )
            await session.open()
        except HoldfastError as exc:
            self._error = exc
            may_pass = target is not None and target.resumable and worth_retrying(exc)
            self._final = self._final or (old is None and not may_pass)
            raise
        self._environment, self._error = Environment(session), None
        return self._environment

    def _end_attempt(self, attempt: "asyncio.Task[Environment]") -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()  # mark the exception as retrieved, even if no caller waits any more


def _target(entry: EnvironmentEntry, memory: NoiseMemory) -> Target:
    if entry.registry_url is not None and entry.environment_id is not None:
        token = entry.token or _token(entry.token_file or "")
        return NoiseTarget(entry.registry_url, entry.environment_id, token, entry.account_id, memory)
    if entry.id == LOCAL:
        require_linux("the environment local", "holdfast exec --env NAME|URL -- COMMAND")
    if entry.url is None:
        return CommandTarget(entry.argv, entry.cwd, entry.environ)
    return parse_target(entry.url, entry.token)


def _token(file: str) -> str:
    try:
        return check_header(Path(file).read_text("utf-8"), file)
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"cannot read the token in {file}", remedy="name a file that is there and that you may read"
        ) from None


def _read(file: Path) -> EnvironmentList:
    try:
        text = file.read_text("utf-8")
    except OSError as exc:
        raise UsageError(f"cannot read {file}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text") from None
    return from_toml(text, source=str(file), folder=str(file.absolute().parent))
