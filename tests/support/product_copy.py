"""The product as another user can run it: its wheel, what that needs and an interpreter, open to everybody.

Built once for a test run by whoever needs it first, in whichever process; removed at the end of the run. The
interpreter is our own where everybody can reach it, else a copy of its installation.
"""

import compileall
import fcntl
import functools
import importlib.metadata
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.patience import patient

VARIABLE: Final = "HOLDFAST_TEST_COPY"
STEP_S: Final = patient(120.0)  # to build or to install the wheel, on a busy machine
_CHECKOUT: Final = Path(__file__).parents[2]
_SOURCES: Final = ("pyproject.toml", "README.md", "LICENSE", "src")
# Of the standard library; what is left out is large, and nothing here uses it.
_UNUSED: Final = (
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "config-*",
)
_NOT_COPIED: Final = shutil.ignore_patterns("*.opt-[12].pyc", *_UNUSED)
_ORIGIN: Final = b"$ORIGIN/../lib"


def reserve() -> None:
    """Choose where it will be, for this process and for those that it starts. Nothing is built yet."""
    os.environ[VARIABLE] = tempfile.mktemp(prefix="holdfast-test-copy-", dir="/var/tmp")  # noqa: S306 - made under a lock


def remove() -> None:
    shutil.rmtree(os.environ.pop(VARIABLE), ignore_errors=True)


def folder() -> Path:
    """Where it is, once `python` was called; everybody can enter it."""
    return Path(os.environ[VARIABLE])


@functools.cache
def python() -> Path:
    """The copy's interpreter, after whoever came first has built the copy."""
    where = folder()
    where.mkdir(mode=0o755, exist_ok=True)
    failed, complete = where / "failed", where / "complete"
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failed.exists():
            raise AssertionError(failed.read_text("utf-8"))
        if not complete.exists():
            try:
                _build(where)
            except (OSError, ValueError, subprocess.SubprocessError) as exc:
                said = getattr(exc, "stderr", None) or ""
                failed.write_text(f"no copy of the product: {exc}\n{said}", "utf-8")  # it would fail again
                raise
            complete.touch()
    return where / "venv/bin/python"


def _build(where: Path) -> None:
    interpreter = _interpreter(where / "base")
    site = _environment(where / "venv", interpreter)
    _copy_dependencies(site)
    shutil.copytree(
        _CHECKOUT / "tests/support", site / "tests/support", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(_CHECKOUT / "tests/__init__.py", site / "tests")
    _install_wheel(where, site)
    open_to_everybody(where)


def _run(*command: str | Path, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=STEP_S)


# --- the interpreter


def open_to_others(path: Path) -> bool:
    """Whether a stranger can reach this and read it, and execute it if anybody can."""
    real = path.resolve()
    mode = real.stat().st_mode
    wanted = stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
    return mode & wanted == wanted and all(one.stat().st_mode & stat.S_IXOTH for one in real.parents)


def _interpreter(copy: Path) -> Path:
    """One that everybody can execute; the copy is made only if ours is not."""
    ours = Path(os.path.realpath(sys.executable))
    if open_to_others(ours) and open_to_others(Path(os.__file__)):
        return ours
    (copy / "bin").mkdir(parents=True)
    for kind in ("stdlib", "platstdlib"):
        library = Path(
            sysconfig.get_path(kind, vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
        )
        target = copy / library.relative_to(sys.base_prefix)
        if not target.exists():
            shutil.copytree(library, target, ignore=_NOT_COPIED, ignore_dangling_symlinks=True)
    program = copy / "bin" / ours.name
    shutil.copy2(ours, program)
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folder = str(sysconfig.get_config_var("LIBDIR"))
        name = str(sysconfig.get_config_var("INSTSONAME"))
        shutil.copy2(Path(folder) / name, copy / "lib" / name)
        for linked in (program, copy / "lib" / name, *copy.rglob("*.so")):
            before = linked.read_bytes()
            if (after := relinked(before, folder)) != before:
                linked.write_bytes(after)
    return program


def relinked(program: bytes, folder: str) -> bytes:
    """A program that looks for its libraries beside itself, not in this folder. Others it finds as before."""
    old = os.fsencode(folder) + b"\0"
    if old not in program:
        return program
    if len(old) <= len(_ORIGIN):
        raise ValueError(
            f"{folder} is too short a path to be replaced in the interpreter: put it where all can read"
        )
    return program.replace(old, _ORIGIN.ljust(len(old), b"\0"))


# --- what is installed for it


def _environment(venv: Path, interpreter: Path) -> Path:
    """An empty virtual environment; where its packages belong."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(interpreter)
    (venv / "pyvenv.cfg").write_text(
        f"home = {interpreter.parent}\ninclude-system-site-packages = false\n", "utf-8"
    )
    site = venv / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    site.mkdir(parents=True)
    return site


def _copy_dependencies(site: Path) -> None:
    """What the product needs as `make run` has it, and `cryptography`, as it is installed for us."""
    _copy_files(_needed("holdfast-agents", frozenset({"fast", "web", "remote"}), {}).values(), site)


def copy_distributions(names: Iterable[str], site: Path) -> None:
    """These distributions with all that they need."""
    found = {name: importlib.metadata.distribution(name) for name in names}
    for name in names:
        _needed(name, frozenset(), found)
    _copy_files(found.values(), site)


def _copy_files(distributions: Iterable[importlib.metadata.Distribution], site: Path) -> None:
    for distribution in distributions:
        for file in distribution.files or ():
            source, target = Path(str(file.locate())), site / file
            if ".." not in file.parts and source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)


def _needed(
    name: str, extras: frozenset[str], found: dict[str, importlib.metadata.Distribution]
) -> dict[str, importlib.metadata.Distribution]:
    """What a distribution needs, with what that needs; extras that are not installed are left out."""
    from packaging.requirements import Requirement  # not there for whoever imports us in the copy

    for text in importlib.metadata.distribution(name).requires or ():
        wanted = Requirement(text)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        key = f"{wanted.name}[{','.join(sorted(wanted.extras))}]"
        try:
            distribution = importlib.metadata.distribution(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if key not in found:
            found[key] = distribution
            _needed(wanted.name, frozenset(wanted.extras), found)
    return found


def _install_wheel(where: Path, site: Path) -> None:
    """From a copy of the source, as building writes into it."""
    source, wheels = where / "source", where / "wheels"
    source.mkdir()
    for name in _SOURCES:
        path = _CHECKOUT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(path, source)
    # As pip does it, at a third of the cost: pip asks the builder for more, each time in a new process.
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(wheels)!r})"
    _run(sys.executable, "-c", build, cwd=source)
    [wheel] = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for ours in ("holdfast", "tests"):  # nobody else may write there, and would compile it at each start
        if not compileall.compile_dir(site / ours, quiet=2):
            raise ValueError(f"a module of {wheel.name} or of its tests is no Python")
    shutil.rmtree(source)


def open_to_everybody(where: Path) -> None:
    """Whatever our umask, and whatever the modes of what was copied."""
    for path in (where, *where.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(stat.S_IMODE(mode) | (0o555 if mode & stat.S_IXUSR else 0o444))
