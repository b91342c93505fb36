"""The doctor's look at tools, agent CLIs, limits, disk, locale and clock, besides the sandbox."""

import asyncio
import contextlib
import errno
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import holdfast_agents
from holdfast.confine.launch import LauncherClient
from holdfast.confine.sandboxes import Sandboxes
from holdfast.doctor.facts.rules import Disk, InstalledProgram, MachineFacts, PlaceFacts
from holdfast.errors import HoldfastError
from holdfast.local.programs import find_program
from holdfast.sandbox.backends.bwrapped import explain
from holdfast.sandbox.host.probes import probe
from holdfast.sandbox.plan.select import Trial, Way

VERSION_S: Final = 1.2  # for `--version`; some CLIs start a whole runtime for it
_MAX_VERSION: Final = 4096  # bytes of its answer
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_TEMPORARY: Final = "/tmp"  # noqa: S108 - it is only looked at
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """One CLI. Paths are below the home directory unless a variable moves them.

    If `version_argv` is the program alone, it is looked for and not run.
    """

    name: str
    version_argv: tuple[str, ...]
    places: tuple[str, ...] = ()
    moved_by: str | None = None  # the variable that replaces the first place
    credentials: tuple[str, ...] = ()  # files that exist after a log-in
    keys: tuple[str, ...] = ()  # variables that serve instead

    def places_in(self, home: str, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The directories of its state."""
        first = environ.get(self.moved_by) if self.moved_by else None
        usual = tuple(f"{home}/{place}" for place in self.places)
        return (first, *usual[1:]) if first else usual

    def logged_in(self, home: str, environ: Mapping[str, str], exists: Callable[[str], bool]) -> bool | None:
        """Whether there is a log-in, judged by names of files and variables; None if these cannot tell."""
        if not self.credentials:
            return None
        if any(environ.get(key) for key in self.keys):
            return True
        moved = environ.get(self.moved_by) if self.moved_by else None
        files = (
            f"{moved}/{path.removeprefix(f'{self.places[0]}/')}" if moved else f"{home}/{path}"
            for path in self.credentials
        )
        return any(exists(path) for path in files)


_TMUX: Final = InstalledAgent("tmux", ("tmux", "-V"))
AGENTS: Final = (
    InstalledAgent(
        "codex", ("codex", "--version"), (".codex",), "CODEX_HOME", (".codex/auth.json",), ("OPENAI_API_KEY",)
    ),
    InstalledAgent(
        "claude",
        ("claude", "--version"),
        (".claude",),
        "CLAUDE_CONFIG_DIR",
        (".claude/.credentials.json",),
        ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
    ),
    InstalledAgent(
        "opencode",
        ("opencode", "--version"),
        (".local/share/opencode", ".config/opencode", ".local/state/opencode"),
        None,
        (".local/share/opencode/auth.json",),
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    ),
    InstalledAgent(
        "gemini",
        ("gemini", "--version"),
        (".gemini",),
        None,
        (".gemini/oauth_creds.json",),
        ("GEMINI_API_KEY",),
    ),
    InstalledAgent(
        "qwen", ("qwen", "--version"), (".qwen",), None, (".qwen/oauth_creds.json",), ("OPENAI_API_KEY",)
    ),
    InstalledAgent("aider", ("aider", "--version"), (".aider",)),
    InstalledAgent("hermes", ("hermes", "--version"), (".hermes",), "HERMES_HOME"),
)


async def gather(
    environ: Mapping[str, str] = os.environ,
    *,
    described: Sequence[InstalledAgent] = (),
    invalid: Mapping[str, str] = {},
) -> MachineFacts:
    """Examine everything concurrently; under two seconds.

    `described` are agents by records, `invalid` has the errors of other records.
    """
    home = environ.get("HOME") or str(Path.home())
    async with asyncio.TaskGroup() as looks:
        host = looks.create_task(probe(environ))
        trials = looks.create_task(_trials(environ))
        programs = [
            looks.create_task(_find_installed(agent, home, environ)) for agent in (_TMUX, *AGENTS, *described)
        ]
    tmux, *agents = (program.result() for program in programs)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    temporary = _place(environ.get("TMPDIR") or _TEMPORARY)
    tried, unlaunched = trials.result()
    other = holdfast_agents.find_other_distribution()
    return MachineFacts(
        host=host.result(),
        trials=tried,
        tmux=tmux,
        agents=tuple(agent for agent in agents if agent is not None),
        invalid_records=dict(invalid),
        codex_home=environ.get("CODEX_HOME") or os.path.join(home, ".codex"),
        temporary=temporary,
        disks=tuple(_disks(home, temporary.path)),
        open_files=soft,
        processes=None if most == resource.RLIM_INFINITY else most,
        encoding=sys.getfilesystemencoding(),
        now=time.time(),
        unlaunched=unlaunched,
        other_package=holdfast_agents.explain(other) if other else "",
        other_package_remedy=holdfast_agents.remedy() if other else "",
    )


async def _trials(environ: Mapping[str, str]) -> tuple[Mapping[Way, Trial], str]:
    """How every way to confine works; if our launcher fails, bubblewrap's result, and the reason."""
    launcher, files = LauncherClient(), ThreadPoolExecutor(1, thread_name_prefix="holdfast-files")
    try:
        launcher.open()
        return await Sandboxes(launcher, files, path=environ.get("PATH", os.defpath)).try_all(), ""
    except (HoldfastError, OSError) as exc:
        return _try_bwrap_by_hand(environ), str(exc)
    finally:
        await launcher.aclose()
        files.shutdown(wait=False)


def _try_bwrap_by_hand(environ: Mapping[str, str]) -> Mapping[Way, Trial]:
    tool = find_program("bwrap", environ.get("PATH", os.defpath), before=())
    if tool is None:
        return {Way.BWRAP: Trial("bwrap.missing", errno.ENOENT)}
    argv = (tool, "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true")
    try:
        done = subprocess.run(argv, capture_output=True, timeout=VERSION_S, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.TimeoutExpired):
        return {}
    failed = explain(done.stderr[-_MAX_VERSION:])
    return {Way.BWRAP: Trial(failed.stage, failed.errno)} if done.returncode else {}


async def _find_installed(
    agent: InstalledAgent, home: str, environ: Mapping[str, str]
) -> InstalledProgram | None:
    path = shutil.which(agent.version_argv[0], path=environ.get("PATH", os.defpath))
    if path is None:
        return None
    places = tuple(_place(place) for place in agent.places_in(home, environ))
    asked = len(agent.version_argv) > 1
    return InstalledProgram(
        agent.name,
        path,
        await _version((path, *agent.version_argv[1:]), environ) if asked else None,
        places,
        agent.logged_in(home, environ, os.path.exists),
        asked=asked,
    )


def _place(path: str) -> PlaceFacts:
    """Whether it can be written. A missing directory would be created in the nearest one above."""
    whole = above = os.path.abspath(path)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    return PlaceFacts(path, above == whole, _writable(above))


def _writable(folder: str) -> bool:
    """Try with a file that never has a name: a sandbox around us may refuse what the permissions allow."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as exc:
        return exc.errno not in _DENIED  # not every file system has nameless files
    return True


async def _version(argv: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    """The version of a CLI.

    It is read without threads, which also works if a filter keeps threads from waking the loop.
    """
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[None] = loop.create_future()
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - spawned at once, awaited below
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environ),
        start_new_session=True,
    )
    if process.stdout is None:
        raise AssertionError("asked for a pipe")
    fd, said = process.stdout.fileno(), b""
    loop.add_reader(fd, lambda: None if heard.done() else heard.set_result(None))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VERSION_S):
                await heard
                said = os.read(fd, _MAX_VERSION)
    finally:
        loop.remove_reader(fd)
        process.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
    found = _NUMBER.search(said.decode("utf-8", "replace"))
    return None if found is None else found.group()


def _disks(*paths: str) -> list[Disk]:
    """One entry for each file system that these paths are on."""
    found: dict[int, Disk] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.statvfs(path)
            files = status.f_favail if status.f_files else None
            found.setdefault(os.stat(path).st_dev, Disk(path, status.f_bavail * status.f_frsize, files))
    return list(found.values())
