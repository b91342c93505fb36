"""One command in a sandbox, for the person at the keyboard: what `holdfast exec` does."""

import asyncio
import contextlib
import enum
import errno
import os
import shutil
import signal
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.confine.childenv import scrubbed
from holdfast.confine.launch import LOST_CODE, Command, Exit, StartFailed
from holdfast.confine.permissions import loopback_ports
from holdfast.confine.sandboxes import Sandbox, plan_of
from holdfast.confine.verdict import MAX_TAIL, denial_report, enforcement_report, judge_of, proven
from holdfast.confine.watching import Watch, begin
from holdfast.errors import HoldfastError, OperationFailed, UsageError, from_os_error
from holdfast.outcome import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    Ending,
    Explained,
    Failure,
    PathAnswer,
    Planned,
    failed,
)
from holdfast.sandbox.plan.planner import settle
from holdfast.sandbox.plan.resolve import locate, look, trace
from holdfast.sandbox.plan.select import ANY, Choice
from holdfast.sandbox.policy import presets, profile
from holdfast.sandbox.policy.paths import absolute, join, parent
from holdfast.sandbox.policy.policy import Access, Bound, Network, Policy, bind
from holdfast.server.executor import Executor
from holdfast.streams import Streams, Tail, occupy_standard_descriptors, opened
from holdfast.wire.processes import DenialReport, Usage, WatchReport

GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL: a build tool removes its temporary files in less
_OWNER: Final = 1
_PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Preset(enum.StrEnum):
    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    FULL_ACCESS = "full-access"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the flags ask for. Paths are as typed, against the current directory."""

    preset: Preset = Preset.WORKSPACE_WRITE
    profile: str | None = None  # a file, instead of a preset
    allow_write: Sequence[str] = ()
    allow_read: Sequence[str] = ()
    deny: Sequence[str] = ()
    network: bool | None = None  # None: as the preset or the profile has it
    cwd: str | None = None
    choice: Choice = ANY
    loopback_ports: Sequence[int] = ()
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """The wish, on this machine."""

    cwd: str
    environ: dict[str, str]
    bound: Bound
    choice: Choice
    loopback_ports: tuple[int, ...]


# --- what the command line calls


def preset(flags: Sequence[str]) -> Preset:
    """The preset that these flags name; the default if none does.

    Raises:
        UsageError: they exclude each other.
    """
    if len(flags) > 1:
        raise UsageError(f"{' and '.join(flags)} exclude each other")
    named = {f"--{value}": value for value in Preset}
    return next((named[flag] for flag in flags if flag in named), Preset.WORKSPACE_WRITE)


def execute(wish: Wish, argv: Sequence[str]) -> Ending:
    """Run a command with our standard streams; whatever happens is in the ending."""
    occupy_standard_descriptors()
    try:
        if not argv or not argv[0]:
            raise UsageError("no command given: holdfast exec [OPTIONS] -- COMMAND")
        return asyncio.run(_execute(scene_of(wish, os.environ), argv, watch=wish.watch))
    except HoldfastError as exc:
        return failed(exc)
    except OSError as exc:
        return failed(from_os_error(exc))
    except KeyboardInterrupt:
        return Ending(128 + signal.SIGINT)


def plan(wish: Wish) -> Planned:
    """What would be done, and by whom.

    Raises:
        HoldfastError: nothing can be run like that.
    """
    return asyncio.run(_plan(scene_of(wish, os.environ)))


def explain(wish: Wish, paths: Sequence[str]) -> Explained:
    """Which rules decide about these paths.

    Raises:
        HoldfastError: the policy makes no sense.
    """
    scene = scene_of(wish, os.environ)
    bound = settle(scene.bound, look(scene.bound, scene.cwd))
    return Explained([_answer(absolute(path, _here()), bound) for path in paths])


# --- the policy


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the current directory does not exist any more") from None


def scene_of(wish: Wish, environ: Mapping[str, str]) -> Scene:
    """What a wish comes to, here and now.

    Raises:
        UsageError: it makes no sense.
    """
    here = _here()
    cwd = here if wish.cwd is None else absolute(wish.cwd, here)
    if not os.path.isdir(cwd):
        raise UsageError(f"{cwd} is not a directory")
    env = scrubbed(environ)
    if wish.cwd is not None:
        env["PWD"] = cwd
    where = locate(cwd, (cwd,), env)
    policy = _policy(wish, here)
    base = bind(policy, where)
    for path in (absolute(path, here) for path in wish.allow_write):
        # Where its directory is writable, allowing a missing path means that it may be created.
        if not os.path.lexists(path) and not base.explain(parent(path), Access.WRITE).allowed:
            raise UsageError(
                f"--allow-write {path}: there is no such file or directory; create it or allow its directory"
            )
        policy = policy.allow_write(path)
    return Scene(cwd, env, bind(policy, where), wish.choice, loopback_ports(wish.loopback_ports))


def _policy(wish: Wish, here: str) -> Policy:
    """Everything but what is to be writable in addition."""
    policy = _preset(wish.preset) if wish.profile is None else _load(wish.profile)
    if wish.network and wish.loopback_ports:
        raise UsageError("--loopback-port says what is left of the network when it is off, not on")
    if wish.network is not None or wish.loopback_ports:
        policy = policy.with_network(Network.ON if wish.network else Network.OFF)
    for path in wish.allow_read:
        policy = policy.allow_read(absolute(path, here))
    for path in wish.deny:
        if profile.is_pattern(path) and not os.path.lexists(join(here, path)):
            policy = policy.deny_glob(path if path.startswith("/") else join(profile.escaped(here), path))
        else:
            policy = policy.deny(absolute(path, here))
    return policy


def _preset(preset: Preset) -> Policy:
    match preset:
        case Preset.READ_ONLY:
            return presets.read_only()
        case Preset.WORKSPACE_WRITE:
            return presets.workspace_write()
        case Preset.FULL_ACCESS:
            return Policy(None, Network.ON)  # unlike a disabled sandbox, the network can be taken away


def _load(path: str) -> Policy:
    try:
        with open(path, "rb") as file:
            tree = tomllib.load(file)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path}: not a TOML file: {exc}") from None
    return profile.policy_of(tree, source=path, home=os.path.expanduser("~"))


def _answer(path: str, bound: Bound) -> PathAnswer:
    real = trace(path).real
    write, above = bound.explain(real, Access.WRITE), real
    while not os.path.lexists(above) and not bound.explain(parent(above), Access.WRITE).allowed:
        above = parent(above)  # what is missing cannot be allowed, only the directory to create it in
    if above != real and write.grant is not None:
        write = replace(write, grant=bound.explain(above, Access.WRITE).grant)
    return PathAnswer(path, real, bound.explain(real, Access.READ), write)


# --- the run


async def _plan(scene: Scene) -> Planned:
    executor = Executor(scene.environ, choice=scene.choice)
    executor.open()
    try:
        sandbox = await executor.sandboxes.confine(
            scene.bound, cwd=scene.cwd, loopback_ports=scene.loopback_ports
        )
    finally:
        await executor.aclose()
    made, _ = plan_of(scene.bound, scene.cwd, scene.loopback_ports)
    return Planned(made.describe(), enforcement_report(sandbox.enforcement))


async def _execute(scene: Scene, argv: Sequence[str], *, watch: bool) -> Ending:
    executor = Executor(scene.environ, choice=scene.choice)
    executor.open()
    try:
        sandbox = await executor.sandboxes.confine(
            scene.bound, cwd=scene.cwd, loopback_ports=scene.loopback_ports
        )
        command = Command(tuple(argv), argv[0], scene.cwd, scene.environ)
        tail = Tail(MAX_TAIL)
        running = _Run(executor, sandbox)
        try:
            end = await running.run(command, tail, watch=watch)
        except StartFailed as exc:
            return _not_started(exc, command, sandbox)
    finally:
        await executor.aclose()
    if end.code == LOST_CODE:
        raise OperationFailed("the launcher died, and the command with it")
    judge = judge_of(sandbox, scene.cwd)
    denial = denial_report(None if judge is None else judge(end.code, tail.read()).denial)
    seen = running.watch.denials.read(0) if running.watch else []
    if end.code != 0:
        denial = proven(denial, seen)
    usage = Usage(end.user_ms, end.system_ms, end.peak_rss_bytes)
    held = enforcement_report(sandbox.enforcement)
    return Ending(end.code, held, denial, usage, watch=running.watched, denials=seen)


class _Run:
    """A command from its start to the last byte of its output. Signals to us are for it."""

    def __init__(self, executor: Executor, sandbox: Sandbox) -> None:
        self._launcher = executor.launcher
        self._sandbox = sandbox
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._id: int | None = None
        self._early: list[int] = []
        self.watch: Watch | None = None
        self.watched: WatchReport | None = None

    async def run(self, command: Command, tail: Tail, *, watch: bool) -> Exit:
        for signum in (*_PASSED_ON, *_ENDING):
            self._loop.add_signal_handler(signum, self.signal, signum)
        with opened() as streams:
            self._loop.add_signal_handler(signal.SIGWINCH, streams.resize)
            if watch:
                self.watch, self.watched = await begin(
                    self._launcher, _OWNER, self._sandbox, command.program, lambda _: None
                )
            await self._start(command, streams)
            outputs = streams.join(tail, lambda: self.signal(signal.SIGHUP))
            end = await self._exited
            # Whoever outlived the command still holds its outputs, which would then never end.
            await self._launcher.aclose()
            written = asyncio.gather(*outputs)
            written.add_done_callback(lambda _: self._stop_waiting())
            await self._over
        return end

    async def _start(self, command: Command, streams: Streams) -> None:
        with self.watch.channel() if self.watch else contextlib.nullcontext() as channel:
            started = await self._launcher.start(
                command,
                owner=_OWNER,
                streams=streams.theirs,
                tty=streams.tty,
                state=None,
                on_exit=self._ended,
                confinement=self._sandbox.confinement,
                watch=channel,
            )
        self._id = started.id
        if self.watch is not None:
            self.watched = await self.watch.report()
        for signum in self._early:
            self.signal(signum)

    def _ended(self, end: Exit) -> None:
        if self.watch is None:
            self._exited.set_result(end)
        else:
            self.watch.finish(lambda: self._exited.set_result(end))

    def signal(self, signum: int) -> None:
        """Pass a signal on to the command; after its end, stop waiting for whoever reads its output."""
        if self._id is None:
            self._early.append(signum)
        elif not self._exited.done():
            self._launcher.signal(self._id, signum)
            if signum in _ENDING:
                self._loop.call_later(GRACE_S, self._launcher.signal, self._id, signal.SIGKILL)
        else:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


def _not_started(exc: StartFailed, command: Command, sandbox: Sandbox) -> Ending:
    """As a shell and env(1) say it; if the policy hides the program, that as well."""
    missing = exc.errno == errno.ENOENT
    code = NOT_FOUND if missing else NOT_EXECUTABLE
    failure = Failure(f"{command.program}: {'command not found' if missing else os.strerror(exc.errno)}")
    denial = None
    found = shutil.which(command.program, path=command.env.get("PATH", os.defpath))
    if found is not None and sandbox.bound is not None:
        real = trace(absolute(found, command.cwd)).real
        decision = sandbox.bound.explain(real, Access.READ)
        if not decision.allowed:
            grant, evidence = decision.grant, os.strerror(exc.errno)
            denial = DenialReport("filesystem", real, None, "read", decision.why, grant, 1.0, evidence)
    return Ending(code, enforcement_report(sandbox.enforcement), denial, failure=failure)
