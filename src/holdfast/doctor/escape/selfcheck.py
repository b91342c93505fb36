"""The self-check: makes every attempt from inside a sandbox and collects the results.

The function that confines is an argument, so that one list serves every backend, and so that a run without
any sandbox can show that the attempts are able to fail. An attempt has held when its outcome is one that it
expects and the witnesses outside have seen nothing.

Starting a sandbox and an interpreter takes longer than most attempts. So those that need no surroundings of
their own are made by the children of one confined process, before the same witnesses. That can only show that
they held: any other is made again in a sandbox and a workspace of its own, and only that result counts.
"""

import ast
import asyncio
import contextlib
import ctypes
import enum
import errno
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.confine.guard import hide_homes
from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command, Confinement, plan_of
from holdfast.doctor.compare.compare import capture
from holdfast.doctor.escape import inside
from holdfast.doctor.escape.attempt import CONTAINED, FAILED, LIMIT, SKIPPED, Attempt, Guarantee
from holdfast.doctor.escape.attempts import ATTEMPTS
from holdfast.errors import HoldfastError, SandboxUnavailable
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.plan.plan import Plan
from holdfast.sandbox.plan.select import Way
from holdfast.sandbox.policy.policy import Access, At, Network, Policy, Rule, Where, bind, workspace_write

_IPC_CREAT, _IPC_RMID = 0o1000, 0
_SETTINGS: Final = ("/proc/sys/vm/swappiness", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname")
_HOME: Final = "state/holdfast"
_SECRETS: Final = ("ws/secrets/key", "ws/secrets/vault/inner", f"{_HOME}/access.key")
_FILES: Final = {
    "ws/.git/config": "config",
    "ws/.codex/auth": "auth",
    "ws/.agents/notes": "notes",
    "ws/conf/locked/file": "locked",
    "outside/file": "outside",
}
MAX_OUTPUT: Final = 1 << 20  # more than any attempt prints; endless output must not fill our memory
COMMAND_S: Final = 40.0  # the slowest takes two seconds; a hang is an outcome, too
_ANSWER_WITHIN_S: Final = 30.0  # for a process that only answers, however busy the machine is
PARALLEL: Final = 4  # most of an attempt is waiting for processes to start
TOGETHER: Final = 16  # many, so that the start hardly counts; few, so that there is work for all in parallel
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SOURCE: Final = Path(inside.__file__).read_text("utf-8")


class AttemptScene:
    """One workspace for one attempt; `close` leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self._secret = secrets.token_hex(16)
        self._mark = f"holdfast-{secrets.token_hex(8)}"  # in names that others on this host could choose
        self._open = contextlib.ExitStack()
        try:
            self.top = Path(tempfile.mkdtemp(prefix="holdfast-selfcheck-", dir=folder)).resolve()
            self._open.callback(shutil.rmtree, self.top)
            self.workspace = self.top / "ws"
            self.tmp = self.top / "tmp"
            self._lay_files()
            self._start_witnesses()
            self._before = self._state()
        except BaseException:
            self._open.close()
            raise

    def close(self) -> None:
        self._open.close()

    def _lay_files(self) -> None:
        self.tmp.mkdir()
        for name, text in {**_FILES, **dict.fromkeys(_SECRETS, self._secret)}.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        (self.workspace / "sub").mkdir()

    def _start_witnesses(self) -> None:
        outside = self.top / "outside"
        self._fifo = outside / "fifo"
        os.mkfifo(self._fifo)
        self._fifo_fd = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._open.callback(os.close, self._fifo_fd)
        self._tcp = self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self._udp = self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        # The address of a unix socket must be short, but the path of the folder may be long.
        short = os.open(outside, os.O_PATH | os.O_CLOEXEC)
        self._open.callback(os.close, short)
        near = f"/proc/self/fd/{short}"
        self._stream = self._listen(socket.AF_UNIX, socket.SOCK_STREAM, f"{near}/stream")
        hidden = os.open(self.top / _HOME, os.O_PATH | os.O_CLOEXEC)
        self._open.callback(os.close, hidden)
        self._supervisor = self._listen(
            socket.AF_UNIX, socket.SOCK_STREAM, f"/proc/self/fd/{hidden}/supervisor.sock"
        )
        self._datagram = self._listen(socket.AF_UNIX, socket.SOCK_DGRAM, f"{near}/datagram")
        self._abstract = self._listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self._mark}")
        master, slave = os.openpty()
        self._open.callback(os.close, master)
        self._open.callback(os.close, slave)
        self._terminal = os.ttyname(slave)
        self._shared = Path("/dev/shm") / self._mark  # noqa: S108 - where the C library has it
        self._shared.write_text(self._secret, "utf-8")
        self._open.callback(self._shared.unlink, missing_ok=True)
        self._make_sysv_memory()
        # Its environment holds the secret, as another process's might hold a password.
        self._victim = subprocess.Popen(
            ["cat"],  # noqa: S607 - wherever it is
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.defpath, "SECRET": self._secret},
            cwd=self.top / "outside",
            process_group=0,
        )
        self._open.callback(self._end_victim)

    def _listen(self, family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
        sock = self._open.enter_context(socket.socket(family, kind))
        sock.setblocking(False)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        return sock

    def _make_sysv_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._shm_key = secrets.randbits(30) | 1
        segment = libc.shmget(self._shm_key, 1, _IPC_CREAT | 0o600)
        if segment < 0:
            raise OSError(ctypes.get_errno(), "shmget")
        self._open.callback(libc.shmctl, segment, _IPC_RMID, None)

    def _end_victim(self) -> None:
        with self._victim:  # closes its pipes
            self._victim.kill()

    def _victim_answers(self) -> bool:
        """Whether the victim still answers: after a fatal signal it may look alive until it runs again."""
        if self._victim.stdin is None or self._victim.stdout is None:
            raise AssertionError("pipes were asked for")
        try:
            os.write(self._victim.stdin.fileno(), b"?")
        except BrokenPipeError:
            return False
        answered, _, _ = select.select([self._victim.stdout], [], [], _ANSWER_WITHIN_S)
        return bool(answered) and os.read(self._victim.stdout.fileno(), 1) == b"?"

    def names(self) -> dict[str, str | int]:
        """What an attempt needs to know, for `inside.main`."""
        return {
            "workspace": str(self.workspace),
            "outside": str(self.top / "outside"),
            "tmp": str(self.tmp),
            "home": os.path.expanduser("~"),
            "victim": self._victim.pid,
            "fifo": str(self._fifo),
            "stream": "../outside/stream",
            "datagram": "../outside/datagram",
            "abstract": self._mark,
            "tcp": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "terminal": self._terminal,
            "shared": self._shared.name,
            "shm_key": self._shm_key,
            "holdfast": str(self.top / _HOME),
            "supervisor": f"../{_HOME}/supervisor.sock",
        }

    def plan(self, *, online: bool = False, hides: bool = False) -> Plan:
        """The plan for a command here; it must be made anew for each command.

        With `online` it has the network. With `hides` Holdfast's own directory is one that every policy
        hides.

        Raises:
            SandboxUnavailable: the last command left something that no plan can protect.
        """
        named = (
            Rule(At(str(self.workspace / "conf/locked")), Access.READ),
            *(Rule(At(str(self.top / name)), Access.DENY) for name in ("ws/secrets/key", "ws/secrets/vault")),
        )
        base = workspace_write(slash_tmp=False)
        policy = Policy((*(base.rules or ()), *named), Network.ON if online else Network.OFF)
        where = Where(str(self.workspace), (str(self.workspace),), tmpdir=str(self.tmp))
        homes = (str(self.top / _HOME),) if hides else ()
        return plan_of(hide_homes(bind(policy, where), found=homes), str(self.workspace))[0]

    def disturbances(self, output: str) -> list[str]:
        """What happened outside that a sandbox must prevent."""
        found = [name for name, value in self._state().items() if self._before.get(name) != value]
        found += [name for name in self._before if not os.path.lexists(name) and name.startswith("/")]
        if not self._victim_answers():
            found.append("a process outside was ended")
        if self._secret in output:
            found.append("a secret was read")
        heard = {"tcp": self._tcp, "unix": self._stream, "unix (abstract)": self._abstract}
        heard["unix (of ours)"] = self._supervisor
        found += [f"a {name} connection arrived" for name, sock in heard.items() if _accept(sock)]
        heard = {"udp": self._udp, "unix": self._datagram}
        found += [f"a {name} datagram arrived" for name, sock in heard.items() if _receive(sock)]
        with contextlib.suppress(BlockingIOError):
            if os.read(self._fifo_fd, 1):
                found.append("a named pipe was written to")
        return found

    def _state(self) -> dict[str, object]:
        """Everything that must stay as it is, with the values that reveal a change."""
        state: dict[str, object] = {name: Path(name).read_text("utf-8") for name in _SETTINGS}
        roots = [
            self.top / name
            for name in ("outside", "ws/.git", "ws/.codex", "ws/.agents", "ws/conf/locked", _HOME)
        ]
        roots += [self.top / name for name in ("ws/secrets/key", "ws/secrets/vault")]
        for root in roots:
            for path in (root, *root.rglob("*")) if os.path.lexists(root) else ():
                facts = path.lstat()
                state[str(path)] = (
                    *(facts.st_mode, facts.st_uid, facts.st_gid, facts.st_ino, facts.st_nlink),
                    *(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns),
                )
        return state


def _accept(sock: socket.socket) -> bool:
    try:
        sock.accept()[0].close()
    except BlockingIOError:
        return False
    except OSError as exc:
        return exc.errno != errno.EAGAIN
    return True


def _receive(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return False


@dataclass(frozen=True, slots=True)
class AttemptJob:
    """One command to be confined."""

    plan: Plan
    argv: tuple[str, ...]
    env: dict[str, str]
    tty: bool
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How it ended: exit code, or 128 + n after signal n; its whole output; the limit that ended it."""

    code: int
    output: str
    limit: str = ""


RunConfined: TypeAlias = Callable[[AttemptJob], Awaitable[AttemptOutcome]]


class AttemptVerdict(enum.StrEnum):
    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one attempt. `disturbances` is what the witnesses outside have seen."""

    attempt: Attempt
    outcome: str
    detail: str = ""
    disturbances: tuple[str, ...] = ()

    @property
    def verdict(self) -> AttemptVerdict:
        if self.disturbances:
            return AttemptVerdict.BROKEN
        if self.outcome == SKIPPED:
            return AttemptVerdict.SKIPPED
        return AttemptVerdict.HELD if self.outcome in self.attempt.expect else AttemptVerdict.BROKEN

    def describe(self) -> str:
        """One line for people."""
        wanted = " or ".join(sorted(self.attempt.expect))
        text = f"{self.attempt.id}: {self.attempt.title}: {self.outcome}, expected {wanted}"
        return "; ".join((text, *filter(None, (self.detail.strip(), *self.disturbances))))


def _ignore(_result: AttemptResult) -> None:
    """Ignore single results."""


async def run(
    run_confined: RunConfined,
    *,
    folder: Path,
    attempts: Sequence[Attempt] = ATTEMPTS,
    python: str = sys.executable,
    on_result: Callable[[AttemptResult], None] = _ignore,
) -> list[AttemptResult]:
    """Make every attempt, each in a workspace of its own below `folder`, which is removed.

    `folder` should not be in a directory for temporary files. `python` must be readable in the sandbox.
    """
    turns = asyncio.Semaphore(PARALLEL)
    made: dict[str, AttemptResult] = {}

    def keep(result: AttemptResult) -> None:
        made[result.attempt.id] = result
        on_result(result)

    async def alone(attempt: Attempt) -> None:
        async with turns:
            try:
                async with _laid(folder) as scene:
                    result = await _try(run_confined, attempt, scene, python)
            except OSError as exc:
                result = AttemptResult(attempt, SKIPPED, f"nothing to try it on: {exc}")
        keep(result)

    async def together(group: Sequence[Attempt]) -> None:
        while group:
            async with turns:
                tried = await _try_together(run_confined, group, folder, python)
            for attempt in group[: len(tried)]:
                if (result := tried[attempt.id]) is not None:
                    keep(result)
                else:
                    await alone(attempt)
            group = group[len(tried) :]

    async with asyncio.TaskGroup() as tasks:
        for group in group_attempts(attempts):
            tasks.create_task(alone(group[0]) if len(group) == 1 else together(group))
    return [made[attempt.id] for attempt in attempts]


# Attempts for a command of their own: they test inheritance, privileges, limits or ordinary work.
_ALONE: Final = {Guarantee.DESCRIPTORS, Guarantee.PRIVILEGES, Guarantee.LIMITS, Guarantee.USABLE}


def group_attempts(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Group the attempts that the children of one process may make, as their sandbox would be the same.

    Those with a limit come first: one takes seconds, in which the others can be made.
    """
    alone: list[list[Attempt]] = []
    limited: list[list[Attempt]] = []
    alike: dict[tuple[bool, bool], list[Attempt]] = {}
    for one in attempts:
        if one.limits is not None:
            limited.append([one])
        elif one.guarantee in _ALONE or one.tty or one.after:
            alone.append([one])
        else:
            alike.setdefault((one.online, one.hides), []).append(one)
    groups = [many[at : at + TOGETHER] for many in alike.values() for at in range(0, len(many), TOGETHER)]
    return limited + groups + alone


@contextlib.asynccontextmanager
async def _laid(folder: Path) -> AsyncIterator[AttemptScene]:
    laying = asyncio.ensure_future(asyncio.to_thread(AttemptScene, folder))
    try:
        yield await asyncio.shield(laying)
    finally:
        scene = await laying  # a thread cannot be cancelled, so there is something to remove in any case
        await asyncio.to_thread(scene.close)


async def _try(
    run_confined: RunConfined, attempt: Attempt, scene: AttemptScene, python: str
) -> AttemptResult:
    outcome, detail, printed = FAILED, "", ""
    for script in filter(None, (attempt.script, attempt.after)):
        try:
            plan = await asyncio.to_thread(scene.plan, online=attempt.online, hides=attempt.hides)
        except SandboxUnavailable as exc:
            outcome, detail = CONTAINED, str(exc)  # no start is better than an unprotected one
            break
        try:
            ended = await run_confined(
                _job(plan, f"main({script!r}, {scene.names()!r})", scene, python, attempt)
            )
        except HoldfastError as exc:
            outcome, detail = FAILED, str(exc)
            break
        printed += ended.output
        outcome, detail = parse_outcome(ended)
    return AttemptResult(
        attempt, outcome, detail, tuple(await asyncio.to_thread(scene.disturbances, printed))
    )


async def _try_together(
    run_confined: RunConfined, group: Sequence[Attempt], folder: Path, python: str
) -> dict[str, AttemptResult | None]:
    """The results of the first attempts of this group, at least one: held, or None if to be made alone."""
    first, scripts = group[0], [one.script for one in group]
    try:
        async with _laid(folder) as scene:
            plan = await asyncio.to_thread(scene.plan, online=first.online, hides=first.hides)
            call = f"main_together({scripts!r}, {scene.names()!r})"
            ended = await run_confined(_job(plan, call, scene, python, first))
            seen = await asyncio.to_thread(scene.disturbances, ended.output)
    except (HoldfastError, OSError):
        return {first.id: None}
    return judge_together(group, ended.output, disturbed=bool(seen))


def judge_together(
    group: Sequence[Attempt], output: str, *, disturbed: bool
) -> dict[str, AttemptResult | None]:
    """The attempts that were made and have held; None for one with an unknown result.

    The witnesses do not know which attempt disturbed them; after a disturbance it could be any.
    """
    told: dict[int, tuple[str, str]] = {}
    for line in output.splitlines():
        if line.startswith(inside.MARK):
            number, outcome, detail = ast.literal_eval(line.removeprefix(inside.MARK))
            told[number] = (outcome, detail)
    judged: dict[str, AttemptResult | None] = {}
    for number, attempt in enumerate(group[: max(told, default=0) + 1]):
        result = AttemptResult(attempt, *told.get(number, (FAILED,)))
        judged[attempt.id] = None if disturbed or result.verdict is not AttemptVerdict.HELD else result
    return judged


def parse_outcome(ended: AttemptOutcome) -> tuple[str, str]:
    """The outcome that a command printed, or how it ended without one; and a detail for people."""
    if ended.limit:
        return LIMIT, ended.limit
    _, mark, rest = ended.output.rpartition(inside.MARK)
    if mark:
        outcome, detail = ast.literal_eval(rest.partition("\n")[0])
        return str(outcome), str(detail)
    if ended.code > 128 and ended.code - 128 in set(signal.Signals):
        return signal.Signals(ended.code - 128).name, ""
    return FAILED, f"exit code {ended.code}: {ended.output[-400:]}"


def _job(plan: Plan, call: str, scene: AttemptScene, python: str, attempt: Attempt) -> AttemptJob:
    environment = {
        "PATH": _PATH,
        "HOME": str(scene.workspace),
        "TMPDIR": str(scene.tmp),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    argv = (python, "-I", "-S", "-B", "-c", f"{_SOURCE}\n{call}\n")
    return AttemptJob(plan, argv, environment, attempt.tty, attempt.limits)


class Native:
    """Runs jobs through a launcher, as the server runs its commands."""

    def __init__(self, launcher: LauncherClient, way: Way, *, tool: str = "") -> None:
        self._launcher = launcher
        self._way, self._tool = way, tool
        self._errands = 0

    async def __call__(self, job: AttemptJob) -> AttemptOutcome:
        self._errands += 1
        done = await capture(
            self._launcher,
            Command(job.argv, job.argv[0], job.plan.cwd, job.env),
            owner=self._errands,
            confinement=Confinement(job.plan, self._way, self._tool),
            limit_s=COMMAND_S,
            keep=MAX_OUTPUT,
            tty=job.tty,
            joined=True,
            limits=job.limits,
        )
        code = 128 + signal.SIGKILL if done.end is None else done.end.code
        reached = done.end.reached if done.end is not None else None
        ended_by = reached.message if reached is not None and reached.killed else ""
        return AttemptOutcome(code, done.stdout.kept.decode("utf-8", "replace"), ended_by)
