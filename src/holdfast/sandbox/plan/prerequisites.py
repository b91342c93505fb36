"""What must be readable for a program to run: its file, its interpreter, and where that finds its code.

Looks at the disk, follows links and virtual environments, and starts nothing. A path that is listed may lie
anywhere; whether a policy hides it is for `uncovered` to say.
"""

import ast
import functools
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OURS: Final = ("holdfast", "click", "msgspec", "websockets")  # we, and some of what we are installed with
_SITES: Final = ("site-packages", "dist-packages")
_MODULES: Final = "node_modules"  # of npm: a launcher in it calls what lies beside its own package
_MAX_HEAD: Final = 256  # bytes of a first line; the kernel reads as many
_MAX_HOPS: Final = 4  # interpreters of interpreters; the kernel allows as many
_MAX_POINTER: Final = 65_536  # bytes of a file that says where code lies


@functools.cache
def of_ourselves() -> tuple[str, ...]:
    """What an interpreter like ours needs in order to run this package."""
    found = [*_of_python(sys.executable), sys.prefix, sys.base_prefix]
    found += [path for path in sys.path if os.path.basename(path) in _SITES or path in _holders()]
    package = Path(__file__).resolve().parents[2]
    if not any(os.path.realpath(path) == str(package.parent) for path in found):
        found.append(str(package))
    return _keep_existing(found)


@functools.cache
def given_by_caller() -> tuple[str, ...]:
    """Directories from which we are run although another interpreter like ours would not look there."""
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    here = sys.path[0] if sys.path and not sys.flags.safe_path else ""  # `python -m` puts its directory first
    given = {os.path.realpath(path) for path in (*named, here) if path}
    return tuple(path for path in _holders() if os.path.realpath(path) in given and not _is_site(path))


def command() -> tuple[str, ...]:
    """The beginning of a command line that runs `holdfast` with the code of this process, from any directory.

    Nothing is imported from the directory it is started in. That of the interpreter is named without links,
    which a sandbox may hide.
    """
    folder, name = os.path.split(sys.executable)
    own = (os.path.join(os.path.realpath(folder), name), "-P", "-m", "holdfast")
    given = os.pathsep.join(map(os.path.realpath, given_by_caller()))
    return ("/usr/bin/env", f"PYTHONPATH={given}", *own) if given else own


def of_program(program: str, search: str) -> tuple[str, ...]:
    """What an executable file needs: itself, its interpreters, the packages they load. No shared library."""
    return _keep_existing(_of_program(program, search, _MAX_HOPS))


def _of_program(program: str, search: str, hops: int) -> Iterator[str]:
    real = os.path.realpath(program)
    yield program
    parts = real.split("/")
    if _MODULES in parts:
        yield "/".join(parts[: parts.index(_MODULES) + 1])
    if os.path.basename(real).startswith("python") or _environment_of(program) is not None:
        yield from _of_python(program)
    interpreter = _interpreter(real, search)
    if interpreter is not None and hops > 0:
        yield from _of_program(interpreter, search, hops - 1)


def _of_python(executable: str) -> Iterator[str]:
    """An interpreter with its virtual environment, the installation below that, and editable sources."""
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
    """The virtual environment whose `bin` holds this name."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(executable)))
    return folder if os.path.isfile(os.path.join(folder, "pyvenv.cfg")) else None


def _base_of(folder: str) -> str | None:
    text = _text(Path(folder, "pyvenv.cfg"))
    pairs = (line.partition("=") for line in text.splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == "home"), None)


def _installation(folder: str) -> Iterator[str]:
    """All of the prefix if it is one: `/opt/python/bin` means `/opt/python`."""
    prefix = os.path.dirname(folder)
    if list(Path(prefix, "lib").glob("python3*/os.py")):
        yield prefix
    yield folder


def _editable(site: Path) -> Iterator[str]:
    """Where packages lie that are installed as links to their sources."""
    for pointer in sorted(site.glob("*.pth")):
        lines = _text(pointer).splitlines()
        yield from (line for line in lines if os.path.isabs(line) and os.path.isdir(line))
    for finder in sorted(site.glob("__editable__*_finder.py")):
        yield from _read_mapping(_text(finder))


def _read_mapping(source: str) -> Iterator[str]:
    """The paths in the table of a finder that setuptools wrote."""
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


def _interpreter(file: str, search: str) -> str | None:
    """The program that its first line names, as `env` would find it."""
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
    """The directories of `sys.path` from which this package and what it needs are loaded."""
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
