"""Random programs of file work, each with every watched call there is, and how each call ended.

A batch is a few programs under one policy. They run side by side as children of one confined process, each in
a tree of its own, and make their calls by number, so that none is hidden behind a library. Each writes down
what the kernel answered. A program depends on its seed alone: run again in a fresh tree it does the same.
"""

import errno
import json
import os
import random
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.sandbox.policy.policy import Access, BoundPolicy, Where, bind, workspace_write
from holdfast.sandbox.watcher.notifyfilter import CALLS

PROGRAMS: Final = 8  # of a batch; with their calls they stay below what is kept of one process
STEPS: Final = 24  # of a program
REFUSALS: Final = frozenset({"EROFS", "EACCES", "EBUSY", "EXDEV"})
NAMES: Final = ("a", "b", "c", "d")
FIRST, LAST = "/holdfast-begins", "/holdfast-ends"  # looked for by a program: where its calls are, for strace
# Those that need no path, or that no program of file work makes.
FILE_CALLS: Final = tuple(
    call for call in CALLS if call.name != "connect" and call.number(os.uname().machine)
)

# Runs inside, with the system's interpreter and nothing of ours. Its argument is a file with the programs.
PROGRAM: Final = r"""
import ctypes, errno, json, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
told = json.load(open(sys.argv[1]))
numbers = told["numbers"]

def place(path, folder, follow):
    whole = os.path.join(folder or os.getcwd(), path)
    for end, part in enumerate(whole.split("/")):
        before = "/".join(whole.split("/")[:end])
        try:
            part == ".." and before and os.stat(before + "/.")
        except PermissionError:
            return os.path.realpath(before)  # nobody comes back from there
        except OSError:
            pass
    if follow:
        return os.path.realpath(whole)
    above, name = os.path.split(whole.rstrip("/"))
    if name in (".", ".."):
        return os.path.realpath(whole)
    return os.path.join(os.path.realpath(above), name)

def is_shut(path, folder, follow):
    whole = os.path.join(folder or os.getcwd(), path)
    try:
        os.lstat(os.path.dirname(whole.rstrip("/")) + "/.")
        os.stat(whole, follow_symlinks=follow)
    except PermissionError:
        return True
    except OSError:
        pass
    return False

def words(step, fds):
    for kind, value in step["args"]:
        if kind == "path":
            yield ctypes.c_char_p(value.encode())
        elif kind == "folder":
            fd = AT_FDCWD
            if value is not None:
                fd = os.open(value, os.O_PATH | os.O_DIRECTORY)
                fds.append(fd)
            yield ctypes.c_long(fd)
        elif kind == "how":
            yield ctypes.c_char_p(struct.pack("=QQQ", value, 0o644 if value & os.O_CREAT else 0, 0))
        elif kind == "socket":
            made = socket.socket(socket.AF_UNIX)
            fds.append(made.detach())
            yield ctypes.c_long(fds[-1])
        elif kind == "address":
            yield ctypes.c_char_p(struct.pack("=H", socket.AF_UNIX) + value.encode() + b"\0")
        else:
            yield ctypes.c_long(value)

def work(program, out):
    done = []
    os.chdir(program["cwd"])
    os.umask(0o022)
    os.access(told["first"], os.F_OK)
    for step in program["steps"]:
        if step["call"] == "chdir":
            try:
                os.chdir(step["path"])
            except OSError:
                pass
            continue
        fds = []
        try:
            where = [place(*one) for one in step["places"]]
            there = [os.path.lexists(path) for path in where]
            shut = any(is_shut(*one) for one in step["places"] + step["reached"])
            args = list(words(step, fds))
        except OSError:
            continue  # a folder that is gone, or hidden
        got = libc.syscall(ctypes.c_long(numbers[step["call"]]), *args)
        code = errno.errorcode[ctypes.get_errno()] if got < 0 else ""
        if got >= 0 and step["call"] in ("open", "openat", "openat2", "creat"):
            fds.append(got)
        for fd in fds:
            os.close(fd)
        asked = [one[0] for one in step["places"]]
        done.append([step["call"], code, where, there, shut, step["dotted"], asked])
    os.access(told["last"], os.F_OK)
    with os.fdopen(out, "w") as file:
        json.dump(done, file)

readers = []
for program in told["programs"]:
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            work(program, writer)
        finally:
            os._exit(0)
    os.close(writer)
    readers.append(reader)
for reader in readers:
    with os.fdopen(reader) as file:
        print(file.read())
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
sys.exit(told["code"])
"""


class Did(NamedTuple):
    """One call of a program, and what the kernel answered: "" if it was done."""

    call: str
    errno: str
    where: list[str]  # each path that it names, as it leads there inside
    there: list[bool]  # was something there?
    shut: bool  # by modes, or by a mask
    dotted: list[bool]  # is it named by . or ..?
    asked: list[str]


def read_done(out: str) -> list[Did]:
    """What a batch printed."""
    return [Did(*one) for line in out.splitlines() if line for one in json.loads(line)]


class Batch(NamedTuple):
    """Programs and their policy. `flags` are of `holdfast exec`, `bound` is the same policy, to be asked."""

    programs: list[dict[str, Any]]
    flags: tuple[str, ...]
    bound: BoundPolicy
    closed: frozenset[str]  # writable directories around something that is not


def make_batch(seed: int, top: Path) -> Batch:
    """Trees below `ws`, the workspace, and `out`, and programs that work in them."""
    dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    trees = [top / where / f"p{n}" / "r" for n in range(PROGRAMS) for where in ("ws", "outside")]
    folders = {tree: sorted(_grow(dice, tree)) for tree in trees}
    flags, bound = _choose_policy(dice, top, folders)
    programs = []
    for n in range(PROGRAMS):
        inside, outside = trees[2 * n], trees[2 * n + 1]
        walk = _Walk(dice, [*folders[inside], *folders[outside]], inside)
        programs.append({"cwd": str(inside), "steps": [walk.step() for _ in range(STEPS)]})
    found = [str(folder) for some in folders.values() for folder in some] + [str(top / "ws/.git")]
    kept = [Path(path) for path in found if not bound.explain(path, Access.WRITE).allowed]
    closed = frozenset(str(above) for path in kept for above in path.parents)
    return Batch(programs, flags, bound, closed)


def write_batch(batch: Batch, file: Path, *, code: int) -> None:
    machine = os.uname().machine
    numbers = {call.name: call.number(machine) for call in FILE_CALLS}
    told = {"programs": batch.programs, "numbers": numbers, "code": code, "first": FIRST, "last": LAST}
    file.write_text(json.dumps(told), "utf-8")


def _grow(dice: random.Random, tree: Path) -> Iterator[Path]:
    """Directories, files and links of one program; the directories."""
    tree.mkdir(parents=True)
    yield tree
    folders = [tree]
    for _ in range(dice.randrange(4, 9)):
        made = dice.choice(folders) / dice.choice((*NAMES, ".git"))
        if not made.exists():
            made.mkdir()
            folders.append(made)
            yield made
    for _ in range(dice.randrange(4, 10)):
        made = dice.choice(folders) / dice.choice(("f", "g", "h"))
        made.unlink(missing_ok=True)  # it may be there, and closed to an ordinary user
        made.write_text("text\n", "utf-8")
        if dice.random() < 0.1:
            made.chmod(0)
    beside = Path(str(tree).replace("/ws/", "/\0/").replace("/outside/", "/ws/").replace("/\0/", "/outside/"))
    for _ in range(dice.randrange(2, 6)):
        link = dice.choice(folders) / dice.choice(("l", "m"))
        target = dice.choice((*folders, beside, beside / "a", tree / "nothing", beside / "f", beside / "a/f"))
        if not os.path.lexists(link):
            link.symlink_to(target if dice.random() < 0.5 else os.path.relpath(target, link.parent))


def _choose_policy(
    dice: random.Random, top: Path, folders: dict[Path, list[Path]]
) -> tuple[tuple[str, ...], BoundPolicy]:
    """Some directories hidden, some writable, one inside of the other as it comes."""
    wish = workspace_write()
    flags: list[str] = []
    for tree, found in folders.items():
        if "outside" in tree.parts and dice.random() < 0.2:
            found = [tree, *found]
        for folder in dice.sample(found, min(len(found), dice.randrange(0, 4))):
            if folder.name == ".git" or (folder == tree and "ws" in tree.parts):
                continue  # where a program begins must be there
            if f"--deny={folder}" in flags or f"--allow-write={folder}" in flags:
                continue
            if dice.random() < 0.5:
                wish, flags = wish.deny(str(folder)), [*flags, f"--deny={folder}"]
            else:
                wish, flags = wish.allow_write(str(folder)), [*flags, f"--allow-write={folder}"]
    return tuple(flags), bind(wish, Where(str(top / "ws"), (str(top / "ws"),)))


class _Walk:
    """What one program does, step by step. Most of it is about paths that are there."""

    def __init__(self, dice: random.Random, folders: list[Path], cwd: Path) -> None:
        self._dice, self._folders, self._cwd = dice, folders, cwd

    def step(self) -> dict[str, Any]:
        if self._dice.random() < 0.08:
            return {"call": "chdir", "path": str(self._dice.choice(self._folders))}
        call = self._dice.choice(FILE_CALLS)
        made: Callable[[], list[tuple[str, Any]]] = getattr(self, f"_{call.name}")
        args, dotted, places = [], [], []
        flags = 0
        for kind, value in made():
            args.append((kind, value))
            if kind in ("flags", "how"):
                flags = value
        for aim, argument in zip(call.aims, call.places, strict=False):
            written = args[argument.path][1]
            folder = args[argument.directory][1] if argument.directory is not None else None
            # A slash at the end is a directory's: the kernel follows a link there whatever the flags say.
            follow = argument.follow and (written.endswith("/") or not flags & call.unfollow)
            if aim == "open":
                follow = not (flags & os.O_NOFOLLOW or (flags & os.O_CREAT and flags & os.O_EXCL))
            places.append((written, folder, follow))
            dotted.append(os.path.basename(written.rstrip("/")) in (".", ".."))
        reached = []
        if (origin := call.origin) is not None:
            folder = None if origin.directory is None else args[origin.directory][1]
            reached.append((args[origin.path][1], folder, False))
        return {"call": call.name, "args": args, "places": places, "dotted": dotted, "reached": reached}

    # --- arguments

    def _path(self, *, short: bool = False) -> tuple[str, str]:
        dice, folder = self._dice, self._dice.choice(self._folders)
        name = dice.choice((*NAMES, *NAMES, "f", "g", "h", "f", "g", "l", "m", "new", "new2", ".git", "."))
        if dice.random() < 0.15:
            name = os.path.join(dice.choice((*NAMES, "l", "m", "..")), name)
        if dice.random() < 0.04:
            name += "/"
        if dice.random() < 0.3 or short:
            return "path", name
        if dice.random() < 0.3:
            return "path", os.path.join(os.path.relpath(folder, self._cwd), name)
        if dice.random() < 0.2:
            return "path", f"{folder}/../{folder.name}/{name}"
        return "path", f"{folder}/{name}"

    def _folder(self) -> tuple[str, str | None]:
        return "folder", str(self._dice.choice(self._folders)) if self._dice.random() < 0.6 else None

    def _number(self, *values: int) -> tuple[str, int]:
        return "number", self._dice.choice(values)

    def _open_flags(self, kind: str = "flags") -> tuple[str, int]:
        way = self._dice.choice((os.O_WRONLY, os.O_RDWR, os.O_WRONLY, os.O_RDONLY))
        more = (0, os.O_CREAT, os.O_CREAT, os.O_TRUNC, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC)
        last = self._dice.choice((0, 0, 0, 0, os.O_NOFOLLOW))
        flags = way | self._dice.choice(more) | last | os.O_NONBLOCK | os.O_CLOEXEC
        return kind, flags if flags & 0o1103 else flags | os.O_WRONLY

    def _mode(self) -> tuple[str, int]:
        return self._number(0o644, 0o755, 0o600, 0)

    # --- calls

    def _open(self) -> list[tuple[str, Any]]:
        return [self._path(), self._open_flags(), ("number", 0o644)]

    def _openat(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._open_flags(), ("number", 0o644)]

    def _openat2(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._open_flags("how"), ("number", 24)]

    def _creat(self) -> list[tuple[str, Any]]:
        return [self._path(), ("number", 0o644)]

    def _truncate(self) -> list[tuple[str, Any]]:
        return [self._path(), self._number(0, 3)]

    def _mkdir(self) -> list[tuple[str, Any]]:
        return [self._path(), ("number", 0o755)]

    def _mkdirat(self) -> list[tuple[str, Any]]:
        return [self._folder(), *self._mkdir()]

    def _mknod(self) -> list[tuple[str, Any]]:
        return [self._path(), self._number(stat.S_IFSOCK | 0o644, stat.S_IFREG | 0o644), ("number", 0)]

    def _mknodat(self) -> list[tuple[str, Any]]:
        return [self._folder(), *self._mknod()]

    def _symlink(self) -> list[tuple[str, Any]]:
        return [self._path(), self._path()]

    def _symlinkat(self) -> list[tuple[str, Any]]:
        return [self._path(), self._folder(), self._path()]

    def _link(self) -> list[tuple[str, Any]]:
        return [self._path(), self._path()]

    def _linkat(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._folder(), self._path(), ("number", 0)]

    def _rename(self) -> list[tuple[str, Any]]:
        return [self._path(), self._path()]

    def _renameat(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._folder(), self._path()]

    def _renameat2(self) -> list[tuple[str, Any]]:
        return [*self._renameat(), self._number(0, 0, 1)]  # 1: RENAME_NOREPLACE

    def _unlink(self) -> list[tuple[str, Any]]:
        return [self._path()]

    def _unlinkat(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._number(0, 0x200)]  # AT_REMOVEDIR

    def _rmdir(self) -> list[tuple[str, Any]]:
        return [self._path()]

    def _chmod(self) -> list[tuple[str, Any]]:
        return [self._path(), self._mode()]

    def _fchmodat(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._mode()]

    def _fchmodat2(self) -> list[tuple[str, Any]]:
        return [self._folder(), self._path(), self._mode(), ("flags", self._dice.choice((0, 0x100)))]

    def _chown(self) -> list[tuple[str, Any]]:
        return [self._path(), ("number", -1), ("number", -1)]

    _lchown = _chown

    def _fchownat(self) -> list[tuple[str, Any]]:
        return [self._folder(), *self._chown(), ("flags", self._dice.choice((0, 0x100)))]

    def _utime(self) -> list[tuple[str, Any]]:
        return [self._path(), ("number", 0)]

    _utimes = _utime

    def _futimesat(self) -> list[tuple[str, Any]]:
        return [self._folder(), *self._utime()]

    def _utimensat(self) -> list[tuple[str, Any]]:
        return [*self._futimesat(), ("flags", self._dice.choice((0, 0x100)))]

    def _bind(self) -> list[tuple[str, Any]]:
        path = self._path(short=True)[1][:100]
        return [("socket", None), ("address", path), ("number", len(path) + 3)]


class Expected(NamedTuple):
    """A call that the sandbox refused, and the paths of which one must be told."""

    call: str
    errno: str
    paths: frozenset[str]


def list_expected(done: list[Did], batch: Batch, *, mounts: bool) -> list[Expected]:
    """What must be told, and nothing else: by the kernel's answer, and the policy that refuses the path.

    The policy decides only between answers that a host gives too: EACCES may be the mode of a file, and EXDEV
    another mount. Landlock cannot let entries change beside one that must not.
    """
    found = []
    for did in done:
        if did.errno not in REFUSALS:
            continue
        refused = [did.where[n] for n in range(len(did.where)) if not _may_change(did, n, batch.bound)]
        if did.errno == "EACCES" and mounts:
            refused = [path for path in did.where if not batch.bound.explain(path, Access.READ).allowed]
        elif not mounts:
            if did.shut:
                continue  # by a mode, before Landlock is asked
            entry = did.call not in _ON_FILES
            for path, there in zip(did.where, did.there, strict=True):
                if (entry or not there) and os.path.dirname(path) in batch.closed:
                    refused.append(path)
        if did.errno == "EBUSY":
            refused = [] if any(did.dotted) else did.where
        if did.errno == "EROFS":
            refused = refused or did.where
        if refused:
            found.append(Expected(did.call, did.errno, frozenset(refused)))
    return found


_ON_FILES: Final = frozenset(call.name for call in FILE_CALLS if call.aims[0] in ("open", "write", "change"))


def _may_change(did: Did, n: int, bound: BoundPolicy) -> bool:
    path = did.where[n]
    needed = [path] if did.dotted[n] else [path, os.path.dirname(path)]
    if not did.there[n] and os.path.basename(path) == ".git":
        needed.remove(path)  # what is made there is moved aside at the end; nobody refuses it
    return all(bound.explain(one, Access.WRITE).allowed for one in needed)


def compare(expected: list[Expected], told: list[dict[str, Any]]) -> list[str]:
    """In words, what was told and did not happen, and what happened and was not told."""
    wrong = []
    counted = Counter((one.call, one.errno) for one in expected)
    heard: Counter[tuple[str, str]] = Counter()
    for one in told:
        key = one["syscall"], one["errno"]
        heard[key] += one["count"]
        places = {path for other in expected if (other.call, other.errno) == key for path in other.paths}
        if one["path"] not in places:
            wrong.append(f"told and not so: {key} {one['path']} (asked {one['asked']})")
    wrong += [
        f"{key}: {counted[key]} refused, {heard[key]} told"
        for key in sorted(counted.keys() | heard.keys())
        if counted[key] != heard[key]
    ]
    paths = {(one["syscall"], one["errno"], one["path"]) for one in told}
    wrong += [
        f"not told: {missing.call} {missing.errno} {sorted(missing.paths)}"
        for missing in expected
        if not any((missing.call, missing.errno, path) in paths for path in missing.paths)
    ]
    return wrong


_CALL: Final = re.compile(r"(\w+)\(.* = (?:-1 (E[A-Z0-9]+) )?")


def count_traced(folder: Path) -> Counter[tuple[str, str]]:
    """What strace saw the programs call, and how it ended; a file of each process is in this folder."""
    machine = os.uname().machine
    names = {call.name: call.name for call in FILE_CALLS}
    names |= {f"syscall_{call.number(machine):#x}": call.name for call in FILE_CALLS}  # too new for strace
    found: Counter[tuple[str, str]] = Counter()
    for file in folder.iterdir():
        lines = file.read_text("utf-8", "replace").splitlines()
        marks = [n for n, line in enumerate(lines) if f'"{FIRST}"' in line or f'"{LAST}"' in line]
        if len(marks) != 2:
            continue
        for line in lines[marks[0] : marks[1]]:
            seen = _CALL.match(line)
            if seen is not None and seen[1] in names and "O_PATH" not in line:
                code = errno.errorcode[getattr(errno, seen[2])] if seen[2] else ""  # some have two names
                found[names[seen[1]], code] += 1
    return found


def count_done(done: list[Did]) -> Counter[tuple[str, str]]:
    return Counter((did.call, did.errno) for did in done)
