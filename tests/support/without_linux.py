"""An interpreter from which what only Linux has is taken away: as near to macOS as a Linux machine comes.

What the standard library lacks there is read from typeshed, which says of each name on which systems it is.
Beyond names: `/proc` and `/sys` are not there, the C library has none of Linux's own calls, a path of a unix
socket ends at 104 bytes, and the system says that it is Darwin. What this cannot show is a real Mac: its
kernel, its file system, its terminals, its `kqueue`.

It is a virtual environment, so whatever a test starts by `sys.executable` is like that too, in whichever
surroundings. But for `holdfast serve`: that is the other machine, with the interpreter that it always has.
"""

import ast
import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

CHECKOUT: Final = Path(__file__).parents[2]
CUSTOMIZE: Final = Path(__file__).with_name("darwin_interpreter.py")

# Where the standard library shows what a kernel or a C library has, and the module in C behind each.
MODULES: Final = {
    "select": "select",  # the first, since others choose by what it has
    "os": "posix",
    "socket": "_socket",
    "signal": "_signal",
    "fcntl": "fcntl",
    "resource": "resource",
    "time": "time",
    "errno": "errno",
    "mmap": "mmap",
    "termios": "termios",
}


def names_on(platform: str, module: str) -> set[str]:
    """The names that this module of the standard library has on this platform, with our version of Python."""
    typeshed = _find_typeshed()
    stub = typeshed / f"{module}.pyi"
    text = (stub if stub.is_file() else typeshed / module / "__init__.pyi").read_text("utf-8")
    facts = SimpleNamespace(platform=platform, version_info=sys.version_info)
    return set(_names(ast.parse(text).body, facts))


def lacking(module: str) -> set[str]:
    """What is there on Linux, and not on macOS."""
    return names_on("linux", module) - names_on("darwin", module)


def _find_typeshed() -> Path:
    found = importlib.util.find_spec("mypy")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "typeshed" / "stdlib"


def _names(body: Iterable[ast.stmt], facts: SimpleNamespace) -> Iterator[str]:
    for node in body:
        match node:
            case ast.If():
                holds = eval(compile(ast.Expression(node.test), "typeshed", "eval"), {"sys": facts})  # noqa: S307
                yield from _names(node.body if holds else node.orelse, facts)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)


def make_interpreter(folder: Path) -> Path:
    """A virtual environment with the packages of this one; returns its interpreter."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    real = Path(sys.base_prefix) / "bin"
    (folder / "pyvenv.cfg").write_text(f"home = {real}\ninclude-system-site-packages = false\n", "utf-8")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    ours = Path(importlib.util.find_spec("pytest").origin).parents[1]  # type: ignore[union-attr, arg-type]
    first = f"import site; site.addsitedir({str(ours)!r})\nimport {CUSTOMIZE.stem}\n"
    (packages / "ours.pth").write_text(first, "utf-8")  # a sitecustomize would stand behind the system's own
    facts = {
        "python": sys.executable,
        "tests": str(CHECKOUT / "tests"),
        "names": {module: [twin, sorted(lacking(module))] for module, twin in MODULES.items()},
    }
    text = CUSTOMIZE.read_text("utf-8").replace('"the facts"', repr(json.dumps(facts)))
    (packages / CUSTOMIZE.name).write_text(text, "utf-8")
    return python


def linux_python() -> str:
    """The interpreter of a machine with Linux: ours, unless that was taken away."""
    if sys.platform != "linux":
        return str(importlib.import_module(CUSTOMIZE.stem).FACTS["python"])
    return sys.executable


@asynccontextmanager
async def serving_elsewhere(listen: str, environ: Mapping[str, str], *, plain: bool) -> AsyncIterator[str]:
    """A server in a process of its own, which is the Linux machine; yields its address."""
    if not plain:
        pytest.skip("a server with clocks or choices of its own is in the test's process, without Linux")
    argv = (sys.executable, "-m", "holdfast", "serve", "--no-hint", "--listen", listen)
    server = await asyncio.create_subprocess_exec(*argv, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield (await server.stdout.readline()).decode().strip()
    finally:
        server.terminate()
        await server.communicate()
