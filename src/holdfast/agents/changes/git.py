"""Runs git on data that a worker could have written: confined, with a system program, and without any setting
of the repository.

A repository can name programs: hooks, filters, monitors, transports. When git only reads or checks out, its
GIT_DIR is a directory that we make, and it sees nothing of the repository but the objects. So no foreign
setting, attribute, exclusion, replacement or index has any effect. When git makes a worktree or a branch, it
works on the real directory, which we pass by path. Git discovers nothing, so it ignores a planted bare
repository. It may write there, and nowhere else.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import NotFound, OperationFailed, UsageError
from holdfast.local.lock import AGAIN_S, open_lock, take_lock
from holdfast.local.programs import find_program
from holdfast.local.shown import show_bytes
from holdfast.local.trees import read_below, remove_tree
from holdfast.sandbox.policy.credentials import credentials
from holdfast.sandbox.policy.policy import PROTECTED_NAMES

LOCK_S: Final = 120.0  # wait while others make worktrees of the same repository, one after the other
GIT_S: Final = 120.0  # a checkout of a large repository on a busy disk
MAX_SAID: Final = 300  # characters of git's own words in an error
MAX_OUTPUT: Final = 64 << 20  # bytes; the list of a repository with half a million files
# Memory limit of git when it reads untrusted objects: 20 KB of them may claim to be a file of many GiB, which
# git would build in memory. The limit must also hold git's mappings of the user's packs (see _FRUGAL).
MAX_MEMORY: Final = 2 << 30
_FRUGAL: Final = {
    "core.packedGitWindowSize": "32m",
    "core.packedGitLimit": "256m",
    "core.bigFileThreshold": "64m",
    "pack.threads": "2",
}
_LIMITED: Final = ("/bin/sh", "-c", 'ulimit -v "$0" && exec "$@"')
MAX_POINTER: Final = 8192  # bytes of a file that names a git directory
MAX_PACKED: Final = 16 << 20  # bytes of packed-refs: a hundred thousand branches
_OID: Final = {40: "", 64: "[extensions]\n\tobjectFormat = sha256\n"}

_SETTINGS: Final = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.sshCommand": "false",
    "core.askPass": "false",
    "core.gitProxy": "false",
    "core.alternateRefsCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
    "submodule.recurse": "false",
}
FIXED: Final = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # unlike `protocol.allow`, a setting for one protocol cannot override it
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_SETTINGS.values())},
}


@dataclass(frozen=True, slots=True)
class Repository:
    """`top` is the work tree, `folder` its git directory, `shared` what all its work trees share."""

    top: Path
    folder: Path
    shared: Path


def find_repository(path: str) -> Repository:
    """Find the repository of a directory without git, which would trust the content of the directory.

    Raises:
        UsageError: it is not a work tree of our user: a bare repository, or one of another user.
        NotFound: there is no repository.
    """
    if not os.path.isabs(path):
        raise UsageError(f"the repository `{path}` is not an absolute path")
    try:
        return _find_repository(path, Path(os.path.realpath(path)))
    except (OSError, ValueError) as exc:  # a name too long, or with a zero byte
        raise UsageError(f"{path} is no git repository: {exc}") from None


def _find_repository(path: str, here: Path) -> Repository:
    if not here.is_dir():
        raise NotFound(f"the repository {path} is not a directory")
    for top in (here, *here.parents):
        if os.path.lexists(top / ".git"):
            folder = _follow(top / ".git", "gitdir: ", top)
            shared = _follow(folder / "commondir", "", folder) if (folder / "commondir").is_file() else folder
            _check_ours(path, folder, shared)
            return Repository(top, folder, shared)
        if _looks_bare(top):
            raise UsageError(
                f"{top} is a bare repository, or looks like one: its author is not known",
                remedy="give the directory of a clone",
            )
    raise NotFound(f"{path} is in no git repository", remedy=f"git init {path}")


def _follow(place: Path, prefix: str, top: Path) -> Path:
    """Return a git directory, or the git directory that a pointer file names."""
    if place.is_dir():
        return Path(os.path.realpath(place))
    try:
        text = os.fsdecode(read_below(place.parent, place.name, MAX_POINTER) or b"")
    except OSError as exc:
        raise UsageError(f"cannot read {place}: {exc.strerror}") from None
    if not text.startswith(prefix) or "\0" in text:
        raise UsageError(f"{place} does not name a git directory")
    return Path(os.path.realpath(top / text.removeprefix(prefix).rstrip("\n")))


def _looks_bare(place: Path) -> bool:
    return (place / "HEAD").is_file() and (place / "objects").is_dir() and (place / "refs").is_dir()


def _check_ours(path: str, *folders: Path) -> None:
    for folder in folders:
        if not (folder / "HEAD").is_file():
            raise UsageError(f"{path} is no git repository: {folder} is no git directory")
        if os.stat(folder).st_uid != os.geteuid():
            raise UsageError(
                f"{folder} belongs to somebody else (uid {os.stat(folder).st_uid})",
                remedy="run the dispatcher as the owner of the repository",
            )


def read_head(repository: Repository) -> str:
    """Read the checked-out commit without git; "" if there is none yet or it cannot be determined."""
    try:
        said = _read_ref(repository.folder, "HEAD")
        name = said.removeprefix("ref: ")
        if name != said:
            if not name.startswith("refs/") or ".." in name:
                return ""
            said = _read_ref(repository.shared, name) or _read_packed(repository, name)
    except (OSError, ValueError):
        return ""
    return said if len(said) in _OID and not said.strip("0123456789abcdef") else ""


def _read_ref(folder: Path, name: str) -> str:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return (read_below(folder, name, MAX_POINTER) or b"").decode().strip()
    return ""


def _read_packed(repository: Repository, name: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        listed = read_below(repository.shared, "packed-refs", MAX_PACKED) or b""
        for line in listed.decode("utf-8", "replace").splitlines():
            oid, _, named = line.partition(" ")
            if named == name:
                return oid
    return ""


@functools.cache
def find_git(home: str, user: str) -> str:
    """Return the git program. It is searched once, at the start of a dispatcher.

    Raises:
        OperationFailed: there is no git, or only where workers could replace it.
    """
    outside = (user, home, "/tmp", "/var/tmp")  # noqa: S108 - where nothing is looked for
    found = find_program("git", os.environ.get("PATH", os.defpath), [at for at in outside if at != "/"])
    if found is None:
        raise OperationFailed(
            "git is missing, or lies where workers could replace it", remedy="install git in /usr/bin"
        )
    return found


@dataclass(frozen=True, slots=True)
class Git:
    """Git for one Holdfast home. `reach` opens a session with that home's exec server, which confines git.

    `user` is the home directory of the person.
    """

    home: Path
    user: str
    reach: Callable[[Path], Awaitable[Environment]]

    @contextlib.asynccontextmanager
    async def alone(self, repository: Repository) -> AsyncIterator[None]:
        """Exclude all other dispatchers of this user: git fails while another git makes a worktree.

        The lock file is out of reach of workers; a lock on the repository itself could be held by any reader
        for ever.

        Raises:
            OperationFailed: others hold the lock for longer than LOCK_S.
            OSError: there is no place for the lock.
        """
        name = hashlib.sha256(os.fsencode(repository.shared)).hexdigest()[:32]
        fd, place = open_lock(name, user=self.user, home=self.home)
        try:
            for _ in range(round(LOCK_S / AGAIN_S)):
                if take_lock(fd):
                    break
                await asyncio.sleep(AGAIN_S)
            else:
                raise OperationFailed(
                    f"others make worktrees of {repository.top} for more than {LOCK_S:g} s",
                    remedy=f"fuser {place} names them",
                )
            yield
        finally:
            os.close(fd)

    @contextlib.asynccontextmanager
    async def open(self, own: Path | None = None, *, strange: bool = False) -> AsyncIterator["GitSession"]:
        """Open a session for some commands, with a directory that is removed afterwards; `own` is kept.

        `strange`: the directory holds objects that another machine made, so git gets a memory limit.

        Raises:
            OperationFailed: there is no git to run.
            HoldfastError: the exec server does not answer.
        """
        program = find_git(str(self.home), self.user)
        place = own or Path(tempfile.mkdtemp(prefix=".git-", dir=self.home))
        try:
            environment = await self.reach(self.home)
            try:
                yield GitSession(self, program, environment, place, strange)
            finally:
                await environment.aclose()
        finally:
            if own is None:
                with contextlib.suppress(OSError):
                    remove_tree(place)


@dataclass(frozen=True, slots=True)
class GitSession:
    git: Git
    program: str
    environment: Environment
    own: Path
    strange: bool = False

    def make_folder(self, oid: str) -> Path:
        """Make our own GIT_DIR, for the object format of `oid`."""
        place = self.own / "git"
        if not place.is_dir():
            for below in ("objects", "refs", "info"):
                (place / below).mkdir(parents=True)
            (place / "HEAD").write_text("ref: refs/heads/none\n", "ascii")
            version = 1 if _OID[len(oid)] else 0
            (place / "config").write_text(
                f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n{_OID[len(oid)]}", "ascii"
            )
        return place

    async def on_objects(
        self,
        repository: Repository | None,
        oid: str,
        *words: str,
        tree: Path | None = None,
        index: Path | None = None,
        writes: Iterable[Path] = (),
        input: bytes | None = None,
    ) -> bytes:
        """Run git on the objects of a repository and on a work tree, by default an empty one of our own.

        Without a repository the only objects are those in our own kept directory.

        Raises:
            OperationFailed: git fails or takes too long.
        """
        empty = self.own / "tree"
        empty.mkdir(exist_ok=True)
        variables = {
            "GIT_DIR": str(self.make_folder(oid)),
            "GIT_WORK_TREE": str(tree or empty),
            "GIT_INDEX_FILE": str(index or self.own / "index"),
        }
        if repository is not None:
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quote(repository.shared / "objects")
        reads = [] if repository is None else [repository.shared]
        return await self._run(words, tree or empty, variables, reads, [self.own, *writes], input)

    async def on_repository(
        self, repository: Repository, *words: str, writes: Iterable[Path] = (), input: bytes | None = None
    ) -> str:
        """Run git on the repository itself, which it may change.

        Raises:
            OperationFailed: git fails or takes too long.
        """
        variables = {"GIT_DIR": str(repository.folder), "GIT_WORK_TREE": str(repository.top)}
        seen = {repository.shared, repository.folder}
        said = await self._run(words, Path("/"), variables, seen, [*seen, self.own, *writes], input)
        return said.decode("utf-8", "replace")

    async def _run(
        self,
        words: Sequence[str],
        cwd: Path,
        variables: Mapping[str, str],
        reads: Iterable[Path],
        writes: Iterable[Path],
        input: bytes | None,
    ) -> bytes:
        policy = _deny_secrets(str(self.git.home), self.git.user)
        for place in reads:
            policy = policy.allow_read(place)
        for place in writes:
            policy = policy.allow_write(place)
            for name in PROTECTED_NAMES:  # a commit may hold any of them, and a work tree has a .git
                policy = policy.allow_write(place / name)
        argv = [self.program, *words]
        if self.strange:
            frugal = [word for name, value in _FRUGAL.items() for word in ("-c", f"{name}={value}")]
            argv = [*_LIMITED, str(MAX_MEMORY >> 10), self.program, *frugal, *words]
        try:
            done = await self.environment.run(
                argv,
                cwd=str(cwd),
                env={**FIXED, **variables, "PATH": os.path.dirname(self.program)},
                policy=policy,
                input=input,
                timeout_s=GIT_S,
                max_output_bytes=MAX_OUTPUT,
            )
        except TimeoutError:
            raise OperationFailed(f"git {words[0]} takes more than {GIT_S:.0f} s") from None
        if done.code:
            raise OperationFailed(f"git {words[0]}: {show_bytes(done.stderr).strip()[-MAX_SAID:]}")
        if done.dropped_bytes:
            raise OperationFailed(f"git {words[0]} says more than {MAX_OUTPUT >> 20} MiB")
        return done.stdout


@functools.cache
def _deny_secrets(home: str, user: str) -> Policy:
    policy = Policy.read_only().deny(home)
    for secret in credentials(user, granted=()):
        policy = policy.deny(secret)
    return policy


def _quote(place: Path) -> str:
    """Quote a path for a list that is separated by colons."""
    text = str(place)
    if ":" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def mode_of(status: os.stat_result) -> str:
    """Return the mode of a file as git writes it."""
    if stat.S_ISLNK(status.st_mode):
        return "120000"
    return "100755" if status.st_mode & stat.S_IXUSR else "100644"
