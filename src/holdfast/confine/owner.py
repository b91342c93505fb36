"""The owner of one command on this machine: this process, while it is small and has one thread.

The host's abilities are not probed beforehand: the command itself is started in the strongest way there is.
What came out weaker is then known from this very start. If the set-up is refused, nothing has run. A
throw-away command then shows whether the host or the policy was the reason. If the host was, the next way is
tried.
"""

import os
import sys

from holdfast.confine import starts
from holdfast.confine.starts import Command, Confinement, Exit, Sandbox, SetupFailed, StartedCommand
from holdfast.errors import SandboxUnavailable
from holdfast.light import TYPE_CHECKING, Any, Callable, Final, Sequence, replace, signal
from holdfast.local.loop import Loop
from holdfast.local.relay import Streams
from holdfast.sandbox.launcher.children import Children, kept
from holdfast.sandbox.plan.select import UNCONFINED, Choice, Trial, Way, meets, select
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Need, needs_of
from holdfast.sandbox.protocol import orders

if TYPE_CHECKING:
    from holdfast.confine.keys import KeptKeys
    from holdfast.confine.loopback import Ports
    from holdfast.confine.names import Answerer, NamesProcess
    from holdfast.confine.watching import LocalWatch
    from holdfast.sandbox.kernel.dnotify import Dnotify
    from holdfast.sandbox.launcher.spare import EarlyStart
    from holdfast.sandbox.limits import Limits
    from holdfast.wire.processes import DeniedCall, WatchReport

_HERE: Final = os.path.realpath(f"{os.path.dirname(__file__)}/../..")  # where the package is
_LIBRARY: Final = os.path.dirname(os.path.realpath(os.__file__))
# Modules that may be imported after the command has run, when the command could have replaced them.
_LATE: Final = (
    "json",
    "re",
    "resource",  # by os.wait4
    "shutil",
    "secrets",
    "holdfast.sandbox.reasons.fingerprints",
    "holdfast.confine.verdict",
    "holdfast.sandbox.plan.prerequisites",
    "holdfast.sandbox.watcher.broker",
    "holdfast.sandbox.watcher.maskguard",
)


def load_only_what_is_ours(policy: BoundPolicy) -> bool:
    """From now on import nothing that a command under this policy could have written.

    Modules are only searched for in the standard library and in our own package. If the command may write
    there, load all modules now and return True.
    """
    sys.path[:] = [
        *(path for path in sys.path if os.path.isabs(path) and within(os.path.realpath(path), _LIBRARY)),
        _HERE,
    ]
    places = [*map(os.path.realpath, sys.path), *((sys.pycache_prefix,) if sys.pycache_prefix else ())]
    writable = policy.full_write or any(_writes(policy, place) for place in places)
    if writable:
        from importlib import import_module

        for name in _LATE:
            import_module(name)
    return writable


def _writes(policy: BoundPolicy, place: str) -> bool:
    """Whether the command may write this place, or something below it."""
    below = (rule for rule in policy.rules if rule.access is Access.WRITE and within(rule.path, place))
    return policy.access_at(place) is Access.WRITE or any(below)


class CommandOwner(Children):
    """Starts the command, receives its exit, and ends whatever is left of it."""

    def __init__(self, loop: Loop, choice: Choice, early: "EarlyStart | None" = None) -> None:
        """`early` is the process that was begun before the plan was known."""
        super().__init__()
        if early is not None:
            self._spares[early.kind] = early.spare
        self.loop = loop
        self.sandbox = Sandbox()
        self.end: Exit | None = None
        self.watched: WatchReport | None = None
        self._choice = choice
        self._command = 0
        self._last_id = 0
        self._events: dict[int, orders.Event] = {}
        self._ended: dict[int, Callable[[Exit], None]] = {}
        self._watch: LocalWatch | None = None
        self._ports: Ports | None = None
        self._names: NamesProcess | None = None
        self.traffic: dict[str, Any] | None = None  # what went out by name, once everything has ended
        self._given_up: Callable[[], bool] = lambda: False
        self._limits: Limits | None = None
        self._keys: KeptKeys | None = None
        self._answerer: Answerer | None = None
        self._stopped: Callable[[int], None] = lambda _: None
        loop.add_signal_handler(signal.SIGCHLD, self._reap)

    # --- the command

    def run(
        self,
        command: Command,
        bound: BoundPolicy,
        ports: tuple[int, ...],
        streams: Streams,
        *,
        watch: bool,
        given_up: Callable[[], bool],
        stopped: Callable[[int], None] = lambda _: None,
        limits: "Limits | None" = None,
        keys: "KeptKeys | None" = None,
        answerer: "Answerer | None" = None,
    ) -> Sandbox:
        """Start the command under this policy, on these streams; return the sandbox that holds for it.

        On a terminal the command is a job: each time a signal stops it, `stopped` is called with that
        signal. `keys` stay outside of it. `answerer` is asked about hosts, if the policy says that a person
        is asked.

        Raises:
            StartFailed: the program cannot be executed; `sandbox` says where.
            SandboxUnavailable: nothing here enforces the policy; nothing runs.
            KeyboardInterrupt: it was given up before it was started.
        """
        self._given_up, self._stopped = given_up, stopped
        self._limits, self._keys, self._answerer = limits, keys, answerer
        try:
            return self._run(command, bound, ports, streams, watch=watch)
        except SetupFailed as exc:
            if not exc.raced:
                raise
        return self._run(command, bound, ports, streams, watch=watch)  # a path of the plan vanished

    def _run(
        self,
        command: Command,
        bound: BoundPolicy,
        ports: tuple[int, ...],
        streams: Streams,
        *,
        watch: bool,
    ) -> Sandbox:
        needs = needs_of(bound) | ({Need.LOOPBACK_PORTS} if ports else frozenset())
        if not needs:
            started = self._begin(command, None, streams, watch=watch)
            self.sandbox = replace(self.sandbox, enforcement=starts.with_limits(UNCONFINED, started, None))
            return self.sandbox
        if bound.by_name and self._names is None:
            from holdfast.confine.names import NamesProcess

            self._names = NamesProcess(bound.hosts, self._keys)
            if self._keys is not None:
                self._names.load()
        plan, settled = starts.plan_of(bound, command.cwd, ports)
        names = starts.hold_names(plan, settled)
        if watch:
            import holdfast.confine.watching
        if ports:
            import holdfast.confine.loopback  # noqa: F401
        writable = load_only_what_is_ours(settled)
        if self._names is not None:
            self._names.check()
            if writable or self._keys is not None:
                self._names.wait_ready()
        refused: dict[Way, Trial] = {}
        for way in self._choice.ways(root=os.geteuid() == 0):
            trial = self._expect(way, needs)
            if not trial.works or not meets(way, needs):
                refused[way] = trial
                if trial.works:
                    break
                continue
            held = select(needs, refused | {way: trial})
            held, confinement = starts.confined_by(held, plan, degraded=self._choice.degraded)
            self.sandbox = starts.sandbox_of(held, confinement, settled, names)
            try:
                started = self._begin_confined(command, confinement, streams, watch=watch)
            except SetupFailed:
                refused[way] = self._try(way, trial.tool)
                if refused[way].works:
                    raise
                continue
            known = Trial(weakened=started.weakened, tool=trial.tool)
            held = select(needs, refused | {way: known})
            held, _ = starts.confined_by(held, plan, degraded=self._choice.degraded)
            held = starts.with_limits(held, started, settled)
            self.sandbox = starts.sandbox_of(held, confinement, settled, names)
            return self.sandbox
        select(needs, refused)
        raise AssertionError("a way that works has been taken")

    def _expect(self, way: Way, needs: frozenset[Need]) -> Trial:
        """Assume that this way works, unless that has to be known before the start."""
        tool = ""
        if way is Way.BWRAP:
            from holdfast.sandbox.backends import bwraptool

            try:
                tool = bwraptool.find(os.environ.get("PATH", os.defpath))
            except bwraptool.Unusable as exc:
                return Trial(exc.stage, exc.errno)
        # Losses under Landlock are counted before the start; that takes a kernel that has Landlock.
        return self._try(way, tool) if way is Way.LANDLOCK or not meets(way, needs) else Trial(tool=tool)

    def _try(self, way: Way, tool: str) -> Trial:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        ends: list[Exit] = []
        late: list[bool] = []
        timer = self.loop.call_later(starts.TRIAL_S, late.append, True)
        try:
            started = self.start(
                starts.TRIAL, starts.trial_of(way, tool), (null, null, null), ends.append, late=late
            )
            self.loop.run_until(lambda: bool(ends or late))
        except SetupFailed as exc:
            return Trial(exc.stage, exc.errno)
        finally:
            os.close(null)
            timer.cancel()
        if late:
            raise SandboxUnavailable("setting up a sandbox hangs on this host")
        return Trial(weakened=started.weakened, tool=tool)

    def _begin_confined(
        self, command: Command, confinement: Confinement, streams: Streams, *, watch: bool
    ) -> StartedCommand:
        """Begin the command. If a process begun early failed for any reason, begin anew: nothing has run."""
        early = len(self._spares)
        try:
            return self._begin(command, confinement, streams, watch=watch)
        except SetupFailed:
            if len(self._spares) == early:
                raise
        return self._begin(command, confinement, streams, watch=watch)

    def _begin(
        self, command: Command, confinement: Confinement | None, streams: Streams, *, watch: bool
    ) -> StartedCommand:
        channel = None
        if watch:
            from holdfast.confine import watching

            self._watch, self.watched = watching.begin_local(self, self.sandbox, command.program)
            channel = self._watch.channel() if self._watch else None
        job = self._listen_for_stops() if streams.tty else -1
        try:
            return self.start(
                command,
                confinement,
                streams.theirs,
                self._on_command_end,
                flags=orders.TTY if streams.tty else 0,
                job=job,
                watch=-1 if channel is None else channel.fileno(),
                limits=self._limits,
            )
        except BaseException:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            raise
        finally:
            if job >= 0:
                os.close(job)
            if channel is not None:
                channel.close()
            if self._watch is not None:
                self.watched = self._watch.await_report()

    def _listen_for_stops(self) -> int:
        """The write end of a pipe on which each stop of a job is reported, with the signal's number."""
        source, sink = os.pipe2(os.O_CLOEXEC)

        def take() -> None:
            data = os.read(source, 4096)
            if data:
                self._stopped(int(data.split()[-1]))
            else:
                self._forget(source)
                os.close(source)

        self.loop.add_reader(source, take)
        return sink

    def start(
        self,
        command: Command,
        confinement: Confinement | None,
        streams: tuple[int, int, int],
        on_exit: Callable[[Exit], None],
        *,
        flags: int = 0,
        job: int = -1,
        watch: int = -1,
        late: Sequence[bool] = (),
        limits: "Limits | None" = None,
    ) -> StartedCommand:
        """Start something on these descriptors, which stay the caller's.

        Raises:
            StartFailed, SetupFailed: it does not run.
            KeyboardInterrupt: it was given up.
        """
        self._last_id += 1
        request = starts.request_of(command, confinement, flags=flags, limits=limits)
        if confinement is None:  # not confined, but ended with us like everything else
            request = kept(request)
        extra = {orders.JOB: job, orders.WATCH: watch}
        for flag, fd in extra.items():
            if fd >= 0:
                request = request._replace(flags=request.flags | flag)
        fds = [os.dup(fd) for fd in (*streams, *extra.values()) if fd >= 0]
        self._ended[self._last_id] = on_exit
        self._command = self._last_id
        self._start(request._replace(id=self._last_id), fds)
        import resource  # noqa: F401 - os.wait4 does so otherwise, when somebody waits for us

        if request.limits:
            self._keep_looking()
        self.loop.run_until(lambda: self._command in self._events or bool(late) or self._given_up())
        if self._command not in self._events:
            if late:
                raise SandboxUnavailable("setting up a sandbox hangs on this host")
            raise KeyboardInterrupt
        event = self._events[self._command]
        if not event.pid:
            raise starts.failure_of(event)
        return starts.started_of(event)

    def _keep_looking(self) -> None:
        soon = self._look_at_limits()
        if soon is not None:
            self.loop.call_later(soon, self._keep_looking)

    def _on_command_end(self, end: Exit) -> None:
        if self._watch is None:
            self.end = end
        else:
            self._watch.finish(lambda: self._set_end(end))

    def _set_end(self, end: Exit) -> None:
        self.end = end

    def read_denials(self) -> "list[DeniedCall]":
        """The calls that the watcher saw refused."""
        return self._watch.denials.denied if self._watch else []

    def count_unconfirmed(self) -> int:
        """The number of calls of which the watcher could not see whether they were refused."""
        return self._watch.denials.unconfirmed if self._watch else 0

    def pass_on(self, signum: int) -> None:
        self.signal(self._command, signum)

    def kill(self) -> None:
        self.signal(self._command, signal.SIGKILL)

    def signal(self, id_: int, signum: int) -> None:
        """Signal every process that came from this start."""
        self._signal(lambda group: group.id == id_, signum)

    def start_watcher(self, fd: int, on_exit: Callable[[Exit], None]) -> int:
        """Fork a watcher on this socket, which stays the caller's; return its id. Raises OSError."""
        self._last_id += 1
        self._ended[self._last_id] = on_exit
        self._fork_watcher(fd, orders.Order(orders.BE_WATCHER, self._last_id))
        return self._last_id

    def end_everything(self) -> None:
        """Kill every process below us, once what the command sent has arrived."""
        if self._ports is not None:
            self._ports.end()
            self._ports = None
        if self._names is not None:
            self.traffic = self._names.end()
            self._names = None
        self._end_everything()

    # --- events from the children

    def _report(self, event: orders.Event, fds: Sequence[int] = ()) -> None:
        if event.op == orders.EXITED:
            self._ended.pop(event.id)(starts.exit_of(event))
            return
        self._events[event.id] = event
        if fds and self._names is not None:
            self._names.serve(fds, self.loop, self._answerer)
        elif fds:
            from holdfast.confine.loopback import Ports

            self._ports = Ports([os.dup(fd) for fd in fds])

    def _make_notifier(self) -> "Dnotify":
        """Use dnotify: closing an inotify instance would delay our end, which our caller waits for."""
        from holdfast.sandbox.kernel.dnotify import Dnotify

        self.loop.add_signal_handler(signal.SIGIO, self._on_appeared)
        return Dnotify()

    def _on_appeared(self) -> None:
        if self._masks is not None:
            self._masks.look()

    def _await(self, fd: int) -> None:
        self.loop.add_reader(fd, self._on_readable, fd)

    def _forget(self, fd: int) -> None:
        self.loop.remove_reader(fd)
