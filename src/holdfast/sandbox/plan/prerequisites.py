"""The files that a program must be able to read to run: itself, its interpreter, and that one's code.

This reads the disk and follows links and virtual environments, and starts no process. A listed path may lie
anywhere.

A policy may hide the directory that contains the program itself: `/tmp` with a checkout in it, or a home
with an interpreter in it. The program would then end with "Permission denied" before its first instruction.
So what it needs is granted below the hidden directory, and never the hidden directory itself (`uncover`).
"""

import ast
import functools
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.sandbox.plan.planner import Sight
from holdfast.sandbox.policy.paths import name, parent, within
from holdfast.sandbox.policy.policy import Access

_OURS: Final = ("holdfast", "click", "msgspec", "websockets")  # ours, and some dependencies
_SITES: Final = ("site-packages", "dist-packages")
_MODULES: Final = "node_modules"  # of npm: a launcher in it runs code beside its own package
_MAX_HEAD: Final = 256  # bytes of a first line; the kernel reads as many
_MAX_HOPS: Final = 4  # interpreters of interpreters; the kernel allows as many
_MAX_POINTER: Final = 65_536  # bytes of a file that points to code
# A link is only visible if its directory is: these directories hold only programs.
_OF_PROGRAMS: Final = ("bin", ".bin", "sbin", "Scripts")


@functools.cache
def of_ourselves() -> tuple[str, ...]:
    """The paths that an interpreter like ours needs to run this package."""
    found = [*_of_python(sys.executable), sys.prefix, sys.base_prefix]
    found += [path for path in sys.path if os.path.basename(path) in _SITES or path in _holders()]
    package = Path(__file__).resolve().parents[2]
    if not any(os.path.realpath(path) == str(package.parent) for path in found):
        found.append(str(package))
    return _keep_existing(found)


@functools.cache
def given_by_caller() -> tuple[str, ...]:
    """Directories that our code is loaded from, but that another interpreter like ours would not search."""
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    here = sys.path[0] if sys.path and not sys.flags.safe_path else ""  # `python -m` puts its directory first
    given = {os.path.realpath(path) for path in (*named, here) if path}
    return tuple(path for path in _holders() if os.path.realpath(path) in given and not _is_site(path))


def command() -> tuple[str, ...]:
    """The start of a command line that runs `holdfast` with this process's code, from any directory.

    No module is imported from the directory it is started in. The interpreter's directory is named without
    links, which a sandbox may hide.
    """
    folder, name = os.path.split(sys.executable)
    own = (os.path.join(os.path.realpath(folder), name), "-P", "-m", "holdfast")
    given = os.pathsep.join(map(os.path.realpath, given_by_caller()))
    return ("/usr/bin/env", f"PYTHONPATH={given}", *own) if given else own


def of_program(program: str, search: str) -> tuple[str, ...]:
    """What an executable file needs: itself, its interpreters and their packages; no shared libraries."""
    return _keep_existing(_of_program(program, search, _MAX_HOPS))


def find_interpreters(program: str, search: str) -> Iterator[str]:
    """A program as a shell finds it, the program that its first line names, and so on; with real paths."""
    found = shutil.which(program, path=search) if "/" not in program else program
    for _ in range(_MAX_HOPS + 1):
        if found is None:
            return
        yield from dict.fromkeys((found, os.path.realpath(found)))
        found = interpreter_of(found, search)


def _of_program(program: str, search: str, hops: int) -> Iterator[str]:
    real = os.path.realpath(program)
    yield program
    parts = real.split("/")
    if _MODULES in parts:
        yield "/".join(parts[: parts.index(_MODULES) + 1])
    if os.path.basename(real).startswith("python") or _environment_of(program) is not None:
        yield from _of_python(program)
    interpreter = interpreter_of(real, search)
    if interpreter is not None and hops > 0:
        yield from _of_program(interpreter, search, hops - 1)


def _of_python(executable: str) -> Iterator[str]:
    """An interpreter with its virtual environment, the base installation, and editable sources."""
    yield executable
    folder = _environment_of(executable)
    if folder is None:
        yield from _installation(os.path.dirname(os.path.realpath(executable)))
        return
    yield folder
    home = _base_of(folder)
    if home is not None:
        yield from _installation(home)
    for site in Path(folder, "lib").glob("python*/site-packages"):
        yield from _editable(site)


def _environment_of(executable: str) -> str | None:
    """The virtual environment whose `bin` contains this path."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(executable)))
    return folder if os.path.isfile(os.path.join(folder, "pyvenv.cfg")) else None


def _base_of(folder: str) -> str | None:
    text = _text(Path(folder, "pyvenv.cfg"))
    pairs = (line.partition("=") for line in text.splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == "home"), None)


def _installation(folder: str) -> Iterator[str]:
    """The whole prefix, if it is an installation: `/opt/python` for `/opt/python/bin`."""
    prefix = os.path.dirname(folder)
    if list(Path(prefix, "lib").glob("python3*/os.py")):
        yield prefix
    yield folder


def _editable(site: Path) -> Iterator[str]:
    """The sources of packages that are installed in editable mode."""
    for pointer in sorted(site.glob("*.pth")):
        lines = _text(pointer).splitlines()
        yield from (line for line in lines if os.path.isabs(line) and os.path.isdir(line))
    for finder in sorted(site.glob("__editable__*_finder.py")):
        yield from _read_mapping(_text(finder))


def _read_mapping(source: str) -> Iterator[str]:
    """The paths in the table of a finder written by setuptools."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == "MAPPING"
            and node.value is not None
        ):
            yield from ast.literal_eval(node.value).values()


def interpreter_of(file: str, search: str) -> str | None:
    """The program that the first line of this file names, as `env` would find it."""
    try:
        with open(file, "rb") as stream:
            head = stream.read(_MAX_HEAD)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
    if words and os.path.basename(words[0]) == "env":
        named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return shutil.which(named[0], path=search) if named else None
    return words[0] if words and os.path.isabs(words[0]) else None


def _holders() -> tuple[str, ...]:
    """The directories of `sys.path` from which this package and its dependencies are loaded."""
    loaded = {os.path.dirname(module.__path__[0]) for name in _OURS if (module := sys.modules.get(name))}
    return tuple(path for path in sys.path if os.path.isabs(path) and path in loaded)


def _is_site(path: str) -> bool:
    return os.path.basename(path) in _SITES


def _text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(_MAX_POINTER)
    except OSError:
        return ""


def _keep_existing(paths: list[str] | Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.abspath(path) for path in paths if path and os.path.lexists(path)))


@dataclass(frozen=True, slots=True)
class Refused:
    """A needed path that stays hidden, because `hidden` is denied and no narrow grant would show it."""

    path: str
    hidden: str

    def words(self) -> str:
        return f"{self.path} cannot be read: {self._place()}"

    def _place(self) -> str:
        return "it is denied" if self.path == self.hidden else f"inside {self.hidden}, which is denied"


@dataclass(frozen=True, slots=True)
class Uncovered:
    grants: tuple[str, ...]  # to be made readable, shallow first
    refused: tuple[Refused, ...]


def uncover(
    needed: Mapping[str, Sight],
    table: Mapping[str, Access],
    *,
    around: str,
    never: Collection[str] = (),
) -> Uncovered:
    """What to grant so that the `needed` paths are readable under the rules of `table`, by real path.

    A grant that would also show the neighbours of `around`, the workspace, is refused. So is any grant below
    a denied path of `never`: the list of needed paths comes from files that an earlier worker may have
    written.
    """
    refused: dict[str, Refused] = {}
    grants: set[str] = set()
    for path, sight in needed.items():
        top = _denier(table, sight.real) if sight.exists else None
        if top is None:
            continue
        if top in never or _is_wide(sight.real, top, table, around):
            refused[path] = Refused(path, top)
        else:
            grants.add(sight.real)
    links = [(path, link.at) for path, sight in needed.items() if sight.exists for link in sight.links]
    for _, at in links:
        top, folder = _denier(table, at), parent(at)
        if top is None or top in never or name(folder) not in _OF_PROGRAMS:
            continue
        if not _is_wide(folder, top, table, around):
            grants.add(folder)
    for path, at in links:
        top = _denier(table, at)
        if top is not None and not any(within(parent(at), grant) for grant in grants):
            refused.setdefault(path, Refused(at, top))
    return Uncovered(_outermost(grants), tuple(refused.values()))


def _is_wide(grant: str, top: str, table: Mapping[str, Access], around: str) -> bool:
    """Whether a grant would show more than a program: all that is hidden, or the workspace's neighbours."""
    beside = parent(around)
    return within(top, grant) or (within(beside, grant) and _denier(table, beside) == top)


def _denier(table: Mapping[str, Access], path: str) -> str | None:
    """The path of the rule that denies this path; None if it can be read."""
    while path not in table:
        if path == "/":
            return "/"
        path = parent(path)
    return path if table[path] is Access.DENY else None


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(paths):
        if not any(within(path, top) for top in kept):
            kept.append(path)
    return tuple(kept)
