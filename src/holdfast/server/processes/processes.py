"""The processes of one session: start, read, write, signal, terminate, forget.

The table outlives connections. Events go to the attached connection; without one they are only recorded. A
closed process stays readable for a while, within a bound on the number of closed ones.
"""

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from holdfast.confine.childenv import final_env
from holdfast.confine.launch import LauncherClient
from holdfast.confine.permissions import limits_of, managed_ports, managed_sockets, name_unseen_cwd
from holdfast.confine.sandboxes import Sandboxes
from holdfast.confine.starts import Command, Exit, Sandbox, SetupFailed, with_limits
from holdfast.confine.verdict import enforcement_report, judge_of, limit_report
from holdfast.confine.watching import begin
from holdfast.errors import InvalidRequest, OperationFailed, SandboxUnavailable, UsageError
from holdfast.sandbox.limits import SHARED
from holdfast.sandbox.plan.select import Backend, Enforcement
from holdfast.sandbox.policy.hostwish import is_inspected
from holdfast.server.processes.commands import (
    CommandCeiling,
    CommandDenials,
    CommandListener,
    OpenCommands,
    make_ceiling,
)
from holdfast.server.processes.hostasking import AskClient, make_asker
from holdfast.server.processes.process import ProcessInput, SessionProcess, open_pipes, set_window_size
from holdfast.server.processes.snapshot import ShellSnapshots, read_output
from holdfast.wire import processes as wire
from holdfast.wire.structs import Empty

if TYPE_CHECKING:  # loaded for a process with a proxy
    from holdfast.confine.loopback import Services
    from holdfast.egress.asking.asker import Ask
    from holdfast.server.processes.keeping import ProcessKeys
    from holdfast.server.processes.proxying import ProcessProxy

MAX_CLOSED: Final = 256  # closed processes kept per session, so that quick starts do not add up to gigabytes
MAX_WAIT_S: Final = 24 * 3600.0  # longer polls are pointless; keeps the timer arithmetic finite
ROWS, COLS = 24, 80


@dataclass(frozen=True, slots=True)
class _Started:
    """Our ends of its streams, and the report about its watch, if one was requested."""

    ours: list[int]
    watch: wire.WatchReport | None
    enforcement: Enforcement


@dataclass(frozen=True, slots=True)
class NetworkSide:
    """The callbacks for questions and records of processes' proxies, and the use of our own proxy."""

    ask: "AskClient"
    offer: Callable[[bytes], None]
    private_via_upstream: bool = False


@dataclass(slots=True)
class _Starting:
    """A start in progress; cancelling the task cancels the start."""

    task: "asyncio.Task[_Started]"
    cancelled: bool = False


class Processes:
    """The processes of one session."""

    def __init__(
        self,
        launcher: LauncherClient,
        sandboxes: Sandboxes,
        *,
        owner: int,
        push: Callable[[bytes], None],
        server_env: dict[str, str],
        shell: str,
        extended: bool,
        closed_retention_s: float,
        ceiling: CommandCeiling | None = None,
        open_commands: OpenCommands | None = None,
        spooled: bool = False,
        on_closed: Callable[[int, float], None] | None = None,
        network: NetworkSide,
    ) -> None:
        self._launcher = launcher
        self._sandboxes = sandboxes
        self._owner = owner
        self._push = push
        self._server_env = server_env
        self._shell = shell
        self._extended = extended
        self._retention_s = closed_retention_s
        self._ceiling = ceiling
        self._open_commands = open_commands
        self._spooled = spooled
        self._on_closed = on_closed
        self._network = network
        self._entries: dict[str, SessionProcess | _Starting] = {}
        self._closed: dict[SessionProcess, asyncio.TimerHandle] = {}
        self._paused = False

    # --- start

    async def start(self, params: wire.StartParams) -> wire.StartResult:
        """Run a command.

        Raises:
            UsageError, SandboxUnavailable: the request was refused before anything ran.
            InvalidRequest: the id is in use, or the start was cancelled.
            OperationFailed: the program could not be started.
        """
        try:
            return await self._start(params)
        except SetupFailed as exc:
            if not exc.raced:
                raise
            return await self._start(params)  # something that the plan named went away; plan again

    async def _start(self, params: wire.StartParams) -> wire.StartResult:
        if self._ceiling is not None:
            params = self._ceiling.restrict(params, live=self.live())
        try:
            cwd = params.cwd.native()
        except UsageError as exc:
            raise UsageError(f"cwd URI `{params.cwd}` is not valid on this exec-server host: {exc}") from None
        env = final_env(params.env, params.env_policy, self._server_env)
        if params.tty:
            env.setdefault("SHELL", self._shell)  # as programs on a terminal expect
        keys = _keep_keys(params, env, self._ceiling)
        try:
            return await self._start_in(params, cwd, env, keys)
        except BaseException:
            if keys is not None:
                keys.kept.forget()
            raise

    async def _start_in(
        self, params: wire.StartParams, cwd: str, env: dict[str, str], keys: "ProcessKeys | None"
    ) -> wire.StartResult:
        """Start it in this directory, with this environment."""
        ports = managed_ports(params)
        proxy = self._make_proxy(params, ports or (), keys)
        sandbox = await self._sandboxes.prepare(
            params.sandbox,
            cwd=cwd,
            environ=env,
            managed_ports=ports,
            managed_sockets=managed_sockets(params),
            inner_ports=() if proxy is None else proxy.ports,
            keys=None if keys is None else keys.kept,
        )
        if keys is not None and keys.are_for(sandbox):
            env = keys.hide(env)
            sandbox = keys.declare(sandbox)
        elif keys is not None:
            keys.kept.forget()
            keys = None
        if proxy is not None:
            env |= proxy.variables
            sandbox = proxy.declare(sandbox)
        services = None if proxy is None else proxy.services
        argv, state = params.argv, None
        if params.shell_snapshot is not None:
            confinement = sandbox.confinement
            capture = functools.partial(read_output, self._launcher, self._owner, confinement, services)
            argv, env, state = await self._snapshots.apply(params, cwd, env, capture)
        if not params.argv:
            raise UsageError("argv must not be empty")
        if params.process_id in self._entries:
            raise InvalidRequest(f"process {params.process_id} already exists")
        # Proxy variables from start-up files must not replace those of a command's own proxy.
        command = _command(argv, params.arg0, cwd, env if proxy is None else env | proxy.variables)
        process = SessionProcess(
            params.process_id,
            push=self._push,
            on_closed=self._keep_closed,
            extended=self._extended,
            judge=judge_of(sandbox, cwd),
            spooled=self._spooled,
        )
        if params.commands is not None:
            process.commands = await self._listen(process, params.commands, params, sandbox, cwd)
            if params.process_id in self._entries:  # it was added while we waited
                process.discard()
                raise InvalidRequest(f"process {params.process_id} already exists")
        task = asyncio.ensure_future(self._launch(process, command, params, state, sandbox, services, keys))
        entry = self._entries[params.process_id] = _Starting(task)
        try:
            started = await task
        except asyncio.CancelledError:
            self._take_back(process, task)
            if entry.cancelled:
                raise InvalidRequest(f"process {params.process_id} start was cancelled") from None
            raise
        except BaseException as exc:
            self._entries.pop(params.process_id, None)
            if isinstance(exc, SetupFailed) and exc.stage == "cwd" and params.sandbox is not None:
                raise SandboxUnavailable(name_unseen_cwd(params.sandbox, cwd)) from None
            raise
        if entry.cancelled:
            self._take_back(process, task)
            raise InvalidRequest(f"process {params.process_id} start was cancelled")
        ours = started.ours
        # There is no await from here to the return, so the response is sent before the first event.
        self._entries[params.process_id] = process
        if params.tty:
            process.attach_terminal(ours[0])
        else:
            process.attach_pipes(ours[0], ours[1], ours[2] if params.pipe_stdin else None)
        if self._paused:
            process.pause()
        return self._build_result(process, started.enforcement, started.watch)

    @functools.cached_property
    def _snapshots(self) -> ShellSnapshots:
        return ShellSnapshots()

    def _make_proxy(
        self, params: wire.StartParams, taken: tuple[int, ...], keys: "ProcessKeys | None"
    ) -> "ProcessProxy | None":
        """Create the proxy of this process, if it has one; the code is loaded with the first."""
        if params.network_proxy is None:
            return None
        from holdfast.server.processes.proxying import make_proxy, upstreams_of

        side = self._network
        return make_proxy(
            params.process_id,
            params.network_proxy,
            taken=taken,
            upstream=upstreams_of(self._server_env, private=side.private_via_upstream),
            ask=side.ask,
            offer=side.offer,
            keys=None if keys is None or keys.kept.by_name else keys.kept,
        )

    async def _listen(
        self,
        process: SessionProcess,
        asked: wire.CommandExecutor,
        params: wire.StartParams,
        sandbox: Sandbox,
        cwd: str,
    ) -> CommandListener:
        """Open the listener for the commands of this process, which is about to be started."""
        if self._open_commands is None or not self._extended:
            raise InvalidRequest("no executor for commands can be had here")
        ceiling = await asyncio.to_thread(
            make_ceiling,
            asked,
            sandbox,
            cwd=cwd,
            limits=limits_of(params),
            tell=process.on_command_denied,
            run=lambda: process.launch_id,
            traffic=process.traffic,
            ask=make_asker(self._network.ask, params.process_id),
        )
        return await self._open_commands(ceiling, asked.socket, asked.token)

    def _find_asker(self, process_id: str) -> "Ask":
        """Who answers questions about hosts: for a command of a process that process's client, not itself."""
        return make_asker(self._network.ask, process_id) if self._ceiling is None else self._ceiling.ask

    def _take_back(self, process: SessionProcess, task: "asyncio.Task[_Started]") -> None:
        """Undo a start, also one that succeeded before its cancellation could take effect."""
        self._entries.pop(process.process_id, None)
        task.cancel()
        if task.done() and not task.cancelled() and task.exception() is None:
            _close(task.result().ours)
            process.discard()
            self._launcher.signal(process.launch_id, signal.SIGKILL)

    def _build_result(
        self, process: SessionProcess, enforcement: Enforcement, watch: wire.WatchReport | None
    ) -> wire.StartResult:
        kind: wire.SandboxType = "none" if enforcement.backend is Backend.NONE else "linuxSeccomp"
        if not self._extended:
            return wire.StartResult(process.process_id, kind)
        return wire.StartResult(process.process_id, kind, enforcement_report(enforcement), process.pid, watch)

    async def _launch(
        self,
        process: SessionProcess,
        command: Command,
        params: wire.StartParams,
        state: bytes | None,
        sandbox: Sandbox,
        services: "Services | None",
        keys: "ProcessKeys | None",
    ) -> _Started:
        """Create the streams and order the start; returns our ends once the command runs."""
        ours: list[int] = []
        theirs: list[int] = []
        report: wire.WatchReport | None = None
        try:
            if params.tty:
                master, slave = os.openpty()
                ours, theirs = [master], [slave]
                set_window_size(slave, ROWS, COLS)
                streams = (slave, slave, slave)
            else:
                streams = open_pipes(ours, theirs, stdin=params.pipe_stdin)
            if self._ceiling is not None:
                process.count_in(self._ceiling.traffic)
            if params.watch and (self._extended or self._ceiling is not None):
                tell: Callable[[wire.WatchedCall], None] = process.on_denied
                if self._ceiling is not None:
                    tell = process.tell_host = CommandDenials(params.argv, self._ceiling.tell).tell
                process.watch, report = await begin(
                    self._launcher, self._owner, sandbox, process.process_id, tell
                )
            by_name = sandbox.bound is not None and sandbox.bound.by_name
            with process.watch.channel() if process.watch else contextlib.nullcontext() as channel:
                started = await self._launcher.start(
                    command,
                    owner=self._owner,
                    streams=streams,
                    tty=params.tty,
                    state=state,
                    on_exit=_forgetting(keys, process.on_ended),
                    confinement=sandbox.confinement,
                    watch=channel,
                    services=services,
                    ask=self._find_asker(params.process_id) if by_name else None,
                    traffic=process.traffic if by_name else None,
                    keys=None if keys is None or not keys.kept.by_name else await keys.open(sandbox),
                    limits=limits_of(params)
                    if self._ceiling is None
                    else self._ceiling.limit(limits_of(params)),
                    run=self._run_of(params),
                )
            process.launch_id, process.pid = started.id, started.pid
            if process.watch is not None:
                report = await process.watch.report()
        except BaseException as exc:
            _close(ours)
            process.discard()
            if process.launch_id:  # it runs, and its watch is lost
                self._launcher.signal(process.launch_id, signal.SIGKILL)
            if sandbox.held is not None:  # descriptors, which may have run out
                sandbox.held.close()
            if isinstance(exc, OSError):
                raise OperationFailed(f"{exc.strerror} (os error {exc.errno})") from None
            raise
        finally:
            _close(theirs)
        return _Started(ours, report, with_limits(sandbox.enforcement, started, sandbox.bound))

    def _run_of(self, params: wire.StartParams) -> int | None:
        """The run whose limits apply: shared with its commands, or that of the process it is a command of."""
        if self._ceiling is not None:
            if not (run := self._ceiling.run()):
                raise InvalidRequest("the process that has this run is not known to be started yet")
            return run
        return None if params.commands is None else SHARED

    # --- the other methods

    async def read(self, params: wire.ReadParams) -> wire.ReadResult:
        """Return one page of events, waiting for new ones if requested."""
        process = self._find(params.process_id)
        after = params.after_seq or 0
        await process.wait_for_news(after, min((params.wait_ms or 0) / 1000, MAX_WAIT_S))
        page = process.log.read(after, params.max_bytes)
        end = process.usage if self._extended else None
        return wire.ReadResult(
            chunks=[wire.ReadChunk(*chunk) for chunk in page.chunks],
            next_seq=page.next_seq,
            exited=page.exited,
            exit_code=page.exit_code,
            closed=page.closed,
            failure=None,
            sandbox_denied=page.denied,
            usage=UNSET if end is None else wire.ProcessUsage(end.user_ms, end.system_ms, end.peak_rss_bytes),
            limit=limit_report(None if end is None else end.reached),
        )

    def denials(self, params: wire.DenialsParams) -> wire.DenialsResult:
        """Ours: return the reports of its watcher; none for a process that is not watched."""
        watch = self._find(params.process_id).watch
        if watch is None:
            return wire.DenialsResult([], 0, 0)
        log = watch.denials
        return wire.DenialsResult([*log.read(params.after)], log.dropped, log.unread)

    async def write(self, params: wire.WriteParams) -> wire.WriteResult:
        """Feed standard input; the answer gives the reason if that is impossible."""
        if not params.write_id:
            raise UsageError("writeId must not be empty")
        stdin = self._input_of(params.process_id)
        if isinstance(stdin, wire.WriteResult):
            return stdin
        if stdin.ended and not stdin.has_accepted(params.write_id):
            return wire.WriteResult("stdinClosed")
        await stdin.write(params.write_id, params.chunk)
        return wire.WriteResult("accepted")

    def close_stdin(self, params: wire.ProcessParams) -> wire.WriteResult:
        """Ours: close standard input, after earlier writes."""
        stdin = self._input_of(params.process_id)
        if isinstance(stdin, wire.WriteResult):
            return stdin
        stdin.end()
        return wire.WriteResult("accepted")

    def _input_of(self, process_id: str) -> ProcessInput | wire.WriteResult:
        """The input of a process, or the answer with the reason why there is none."""
        process = self._entries.get(process_id)
        if process is None:
            return wire.WriteResult("unknownProcess")
        if isinstance(process, _Starting):
            return wire.WriteResult("starting")
        return process.stdin or wire.WriteResult("stdinClosed")

    def signal(self, params: wire.SignalParams) -> Empty:
        """Signal the whole process group, if it runs."""
        signum = signal_number(params.signal)
        process = self._entries.get(params.process_id)
        if isinstance(process, SessionProcess) and not process.log.exited:
            self._launcher.signal(process.launch_id, signum)
        return Empty()

    def terminate(self, params: wire.ProcessParams) -> wire.TerminateResult:
        """Kill a process that runs or is being started."""
        process = self._entries.get(params.process_id)
        if isinstance(process, _Starting):
            process.cancelled = True
            process.task.cancel()
            return wire.TerminateResult(True)
        if process is None or process.log.exited:
            return wire.TerminateResult(False)
        process.terminate()
        self._launcher.signal(process.launch_id, signal.SIGKILL)
        return wire.TerminateResult(True)

    def resize(self, params: wire.ResizeParams) -> Empty:
        """Ours: change the size of the process's terminal."""
        process = self._find(params.process_id)
        if not process.resize(params.rows, params.cols):
            raise InvalidRequest(f"process {params.process_id} has no terminal")
        return Empty()

    def _find(self, process_id: str) -> SessionProcess:
        process = self._entries.get(process_id)
        if process is None:
            raise InvalidRequest(f"unknown process id {process_id}")
        if isinstance(process, _Starting):
            raise InvalidRequest(f"process id {process_id} is starting")
        return process

    # --- life

    def live(self) -> int:
        """Number of processes that have not exited."""
        return sum(
            1 for entry in self._entries.values() if isinstance(entry, _Starting) or not entry.log.exited
        )

    @property
    def any(self) -> bool:
        """Whether there is any process to come back for."""
        return bool(self._entries)

    def held_bytes(self) -> int:
        """Number of bytes of output that are kept for all of them."""
        return sum(
            entry.log.held_bytes for entry in self._entries.values() if isinstance(entry, SessionProcess)
        )

    def pause(self) -> None:
        """Make the children wait, because the reader is too slow."""
        self._paused = True
        self._each(SessionProcess.pause)

    def resume(self) -> None:
        self._paused = False
        self._each(SessionProcess.resume)

    def end(self) -> None:
        """Kill and forget all processes, without any event."""
        for entry in list(self._entries.values()):
            if isinstance(entry, _Starting):
                entry.cancelled = True
                entry.task.cancel()
        self._each(SessionProcess.discard)
        self._launcher.end_owner(self._owner)
        for timer in self._closed.values():
            timer.cancel()
        self._closed.clear()
        self._entries.clear()

    def _each(self, act: Callable[[SessionProcess], None]) -> None:
        for entry in list(self._entries.values()):
            if isinstance(entry, SessionProcess):
                act(entry)

    def _keep_closed(self, process: SessionProcess) -> None:
        loop = asyncio.get_running_loop()
        if self._on_closed is not None and process.usage is not None:
            self._on_closed(process.usage.code, loop.time() - process.began)
        self._closed[process] = loop.call_later(self._retention_s, self._forget, process)
        while len(self._closed) > MAX_CLOSED:
            self._forget(next(iter(self._closed)))

    def _forget(self, process: SessionProcess) -> None:
        self._closed.pop(process).cancel()
        if self._entries.get(process.process_id) is process:
            del self._entries[process.process_id]


def _keep_keys(
    params: wire.StartParams, env: dict[str, str], ceiling: CommandCeiling | None
) -> "ProcessKeys | None":
    """The keys that stay outside of it, or the certificates by which its requests are inspected.

    The code for that is loaded with the first.
    """
    proxied = params.network_proxy is not None and params.network_proxy.proxy.credential_masking
    asked = params.sandbox.hosts if params.sandbox is not None else None
    rules = (asked.allow if asked else ()) if ceiling is None else ceiling.bound.hosts.allow
    inspects = any(map(is_inspected, rules))
    if not params.secrets and not inspects:
        if not proxied or params.sandbox is None:
            return None
        from holdfast.server.processes.keeping import keep_known

        given = None if params.network_proxy is None else params.network_proxy.proxy.credential_providers
        return keep_known(params.argv, env, given)
    if params.secrets and params.sandbox is None:
        raise UsageError("keys stay outside of a process that is confined, and this one is not")
    if proxied:
        raise UsageError(
            "credentialMasking is for hosts of a proxy, secrets and rules about requests for hosts by name",
            remedy="leave one out",
        )
    from holdfast.server.processes.keeping import keep_given

    return keep_given(params.secrets, params.argv, env, inspects=inspects)


def _forgetting(keys: "ProcessKeys | None", on_exit: Callable[[Exit], None]) -> Callable[[Exit], None]:
    """Wrap the exit callback of a process so that it also removes the process's certificates."""
    if keys is None or keys.kept.by_name:
        return on_exit
    kept = keys.kept

    def ended(end: Exit) -> None:
        kept.forget()
        on_exit(end)

    return ended


def signal_number(name: str) -> int:
    """Parse `interrupt`, or any signal's name with or without SIG.

    Raises:
        UsageError: there is no such signal.
    """
    if name == "interrupt":
        return signal.SIGINT
    try:
        return signal.Signals["SIG" + name.upper().removeprefix("SIG")]
    except KeyError:
        raise UsageError("unknown signal name; use `interrupt` or a name such as SIGTERM") from None


def _command(argv: list[str], arg0: str | None, cwd: str, env: dict[str, str]) -> Command:
    if not argv[0]:
        raise OperationFailed("missing program for pipe spawn")
    if any("\0" in text for text in (*argv, arg0 or "", cwd, *env, *env.values())):
        raise OperationFailed("nul byte found in provided data")
    return Command((arg0 if arg0 is not None else argv[0], *argv[1:]), argv[0], cwd, env)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
