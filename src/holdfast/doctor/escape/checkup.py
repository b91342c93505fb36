"""The escape suite on this host: the backends that work here, each tried by each of some users."""

import asyncio
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec

from holdfast import decoding
from holdfast.doctor.escape import selfcheck
from holdfast.doctor.escape.attempts import Attempt
from holdfast.doctor.escape.scorecard import Column, ScoredAttempt, find_excuses
from holdfast.doctor.facts.rules import explain_trial
from holdfast.errors import HoldfastError, OperationFailed, UsageError
from holdfast.sandbox.kernel import kernel, landlock
from holdfast.sandbox.launcher import launcher
from holdfast.sandbox.plan.resolve import trace
from holdfast.sandbox.plan.select import BACKENDS, Backend, Trial, Way
from holdfast.sandbox.reasons import fingerprints
from holdfast.server.executor import Executor

T = TypeVar("T")

ALL: Final = (Backend.NAMESPACES, Backend.BWRAP, Backend.LANDLOCK)
_PYTHONS: Final = "/usr/local/bin:/usr/bin:/bin"  # where every user finds one
_PLAIN_PYTHON: Final = "/usr/bin/python3"
_ANSWER_S: Final = 30.0  # an interpreter that prints its version, on a busy machine
_MAX_TOLD: Final = 16 << 20  # all attempts by all backends are a tenth of this
_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProgressListener(Protocol):
    """Receives the progress of the attempts."""

    def begin(self, name: str, total: int) -> None: ...

    def step(self, *, escaped: bool) -> None: ...

    def end(self) -> None: ...


class Interrupted(Exception):
    """A signal ended it; everything was cleaned up."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def check(
    backend: Backend | None, user: str | None, attempts: Sequence[Attempt], progress: ProgressListener
) -> list[Column]:
    """Make these attempts with one backend or with all, as the current user and as `user` if one is named.

    Raises:
        UsageError: no such user, only root could become it, or it cannot reach our code or any Python.
        Interrupted: a signal came.
    """
    named = None if user is None else _entry(user)
    if named is not None and named.pw_uid != os.geteuid():
        _refuse_out_of_reach(named)
    columns = _run_until_signal(_try_backends(backend, attempts, progress, _name(os.geteuid())))
    if named is None or named.pw_uid == os.geteuid():
        return columns
    return columns + _as_user(
        named, lambda: _run_until_signal(_try_backends(backend, attempts, progress, named.pw_name))
    )


def _entry(user: str) -> pwd.struct_passwd:
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise UsageError(f"--user {user}: there is no such user") from None
    if os.geteuid() not in (0, found.pw_uid):
        raise UsageError("only root can try as somebody else", remedy=f"run it as {user}, or with sudo")
    return found


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# --- as the current user


def _run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run it. The first signal cancels it, and further ones do not disturb the clean-up."""

    async def watched() -> T:
        loop, heard = asyncio.get_running_loop(), list[int]()
        task = asyncio.ensure_future(main)

        def stop(signum: int) -> None:
            if not heard:
                heard.append(signum)
                task.cancel()

        for signum in _ENDING:
            loop.add_signal_handler(signum, stop, signum)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted(heard[0] if heard else signal.SIGINT) from None

    return asyncio.run(watched())


async def _try_backends(
    backend: Backend | None, attempts: Sequence[Attempt], progress: ProgressListener, user: str
) -> list[Column]:
    wanted = ALL if backend is None else (backend,)
    columns = [Column(user, one.value, wanted=backend is not None) for one in wanted]
    executor = Executor()
    try:
        executor.open()
        trials = await executor.sandboxes.try_all()
        return [await _fill(column, executor, trials, attempts, progress) for column in columns]
    except (HoldfastError, OSError) as exc:
        remedy = exc.remedy if isinstance(exc, HoldfastError) else None
        return [replace(column, reason=str(exc), remedy=remedy) for column in columns]
    finally:
        await executor.aclose()


async def _fill(
    column: Column,
    executor: Executor,
    trials: Mapping[Way, Trial],
    attempts: Sequence[Attempt],
    progress: ProgressListener,
) -> Column:
    """The column of one backend, by the way that a server would take."""
    ways = [way for way in trials if BACKENDS[way] == column.backend]
    way = next((way for way in ways if trials[way].works), ways[0])
    trial = trials[way]
    if not trial.works:
        known = fingerprints.by_errno(trial.stage, trial.errno)
        remedy = None if known is None else known.remedy
        return replace(column, way=way.value, reason=explain_trial(trial), remedy=remedy)
    made: dict[str, ScoredAttempt] = {}

    def heard(result: selfcheck.AttemptResult) -> None:
        made[result.attempt.id] = one = _score(result, way, trial)
        progress.step(escaped=one.escaped)

    progress.begin(column.name, len(attempts))
    try:
        await selfcheck.run(
            selfcheck.Native(executor.launcher, way, tool=trial.tool),
            folder=_folder(),
            attempts=attempts,
            python=sys.executable,
            on_result=heard,
        )
    finally:
        progress.end()
    return replace(column, way=way.value, tried=tuple(made[attempt.id] for attempt in attempts))


def _score(result: selfcheck.AttemptResult, way: Way, trial: Trial) -> ScoredAttempt:
    id_, root = result.attempt.id, os.geteuid() == 0
    excuses = find_excuses(id_, way, privileged=root, abi=landlock.abi(), weakened=trial.weakened)
    skipped = result.verdict is selfcheck.AttemptVerdict.SKIPPED
    text = f"{id_}: {result.detail}" if skipped else result.describe()
    return ScoredAttempt(id_, result.verdict.value, text, tuple(sorted(excuses)))


def _folder() -> Path:
    """A directory for workspaces: at home rather than among temporary files, which policies often exempt."""
    home = Path(os.path.expanduser("~"))
    for folder in (home / ".cache", home, Path("/var/tmp")):  # noqa: S108 - each attempt makes its own in it
        if folder != Path("/") and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return Path(tempfile.gettempdir())


# --- as another user


def _as_user(entry: pwd.struct_passwd, columns_of: Callable[[], list[Column]]) -> list[Column]:
    """The results of a child that became this user.

    Modules that the child cannot read as that user are loaded before.
    """

    def found() -> list[Column]:
        sys.executable = _reachable().python or sys.executable
        return [replace(column, wanted=True) for column in columns_of()]

    return _ask_as(entry, found, list[Column])


def _refuse_out_of_reach(entry: pwd.struct_passwd) -> None:
    """Refuse early, before any attempt is made, since the rest takes minutes."""
    found = _ask_as(entry, _reachable, Reach)
    if found.python is None:
        raise UsageError(
            f"--user {entry.pw_name}: {found.problem}",
            remedy="install Holdfast where every user can read it, with a Python that every user can run: "
            f"{_PLAIN_PYTHON} -m venv /opt/holdfast && /opt/holdfast/bin/pip install holdfast-agents",
        )


def _ask_as(entry: pwd.struct_passwd, ask: Callable[[], T], kind: type[T]) -> T:
    """The answer of a child that became this user."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    us, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        _be(entry, us, ask, writer)
    os.close(writer)
    try:
        with open(reader, "rb") as stream:
            told = stream.read(_MAX_TOLD)
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    code = os.waitstatus_to_exitcode(status)
    if code - 128 in _ENDING:
        raise Interrupted(code - 128)
    if code != 0:
        raise OperationFailed(f"the part as {entry.pw_name} ended with {code}")
    return decoding.decode(told, kind)


def _be(entry: pwd.struct_passwd, parent: int, ask: Callable[[], object], writer: int) -> NoReturn:
    code = 1
    try:
        _become(entry)
        kernel.die_with_parent(signal.SIGTERM)
        if os.getppid() == parent:
            answer = msgspec.json.encode(ask())
            with open(writer, "wb") as stream:
                stream.write(answer)
            code = 0
    except Interrupted as exc:
        code = 128 + exc.signum
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _become(entry: pwd.struct_passwd) -> None:
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    # Changing its user made this process undumpable, so that none may inspect it; one started by the user is
    # not.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    for name in [name for name in os.environ if name.startswith("XDG_") or name == "TMPDIR"]:
        del os.environ[name]
    home = entry.pw_dir if os.path.isdir(entry.pw_dir) else "/"
    os.environ.update(HOME=home, USER=entry.pw_name, LOGNAME=entry.pw_name)
    os.chdir("/")


class Reach(msgspec.Struct, frozen=True):
    """An interpreter for the launcher and the attempts; None, with the obstacle, if none can run."""

    python: str | None
    problem: str = ""


def _reachable() -> Reach:
    """For the current user: our own interpreter, else one that every user finds."""
    if (problem := _obstacle(launcher.__file__, os.R_OK)) is not None:
        return Reach(None, problem)
    library = os.path.dirname(os.__file__)
    problem = _obstacle(sys.executable, os.X_OK) or _obstacle(library, os.R_OK | os.X_OK)
    if problem is None:
        return Reach(sys.executable)
    other = shutil.which("python3", path=_PYTHONS)
    if other is not None and _is_recent(other):
        return Reach(other)
    return Reach(None, f"{problem}, and {_PYTHONS} have no Python 3.11 or newer")


def _obstacle(path: str, access: int) -> str | None:
    """The obstacle on the way to a path, in words: the first unsearchable directory, or the path itself."""
    if os.access(path, access):
        return None
    real = trace(os.path.abspath(path)).real
    above = [str(folder) for folder in reversed(Path(real).parents)]
    closed = next((folder for folder in above if not os.access(folder, os.X_OK)), None)
    if closed is None:
        return f"{real} may not be {'run' if access & os.X_OK else 'read'} by this user"
    return f"{closed} may not be searched by this user, and {path} leads there"


def _is_recent(python: str) -> bool:
    command = [python, "-I", "-S", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(command, check=False, timeout=_ANSWER_S).returncode == 0  # noqa: S603 - no words of others
