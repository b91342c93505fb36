"""This machine as the recipes of presets see it, without files that the command could have written."""

import contextlib
import importlib.util
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.egress.clients.packages import Surroundings
from holdfast.egress.clients.recipes import grant_presets
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Policy

MAX_BYTES: Final = 4 * 1024 * 1024  # of one file: npm's definitions take a tenth of that
MAX_ENTRIES: Final = 1000
_PIP_INDEX: Final = "_internal/models/index.py"


def read_presets(
    policy: Policy, bound: BoundPolicy, environ: Mapping[str, str], closed: Sequence[str] = ()
) -> Policy:
    """The policy with the hosts of its presets, for a command confined by `bound`, which has real paths.

    Settings that the command could have written, or that are below one of the `closed` directories, are not
    read.

    Raises:
        UsageError: a client is unknown, or its settings name no host.
    """
    limited = bound.restricted and not bound.explain("/", Access.WRITE).allowed

    def is_writable(path: str) -> bool:
        if any(within(path, folder) for folder in (bound.cwd, *closed)):
            return True
        return limited and bound.explain(path, Access.WRITE).allowed

    return grant_presets(policy, look_around(environ, is_writable))


def look_around(environ: Mapping[str, str], is_writable: Callable[[str], bool]) -> Surroundings:
    """`is_writable` tells whether the command may write a path: such a file does not speak for the user."""

    def is_anothers(path: str) -> bool:
        return not path.startswith("/") or is_writable(path) or is_writable(os.path.realpath(path))

    def read(path: str) -> str | None:
        if is_anothers(path):
            return None
        try:
            with open(os.path.realpath(path), "rb") as file:
                return file.read(MAX_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")
        except OSError:
            return None

    def list_names(folder: str) -> Sequence[str]:
        if is_anothers(folder):
            return ()
        try:
            return sorted(os.listdir(folder))[:MAX_ENTRIES]
        except OSError:
            return ()

    def find_program(name: str) -> str | None:
        found = shutil.which(name, path=environ.get("PATH", os.defpath))
        return None if found is None else os.path.realpath(found)

    home = environ.get("HOME") or os.path.expanduser("~")
    return Surroundings(environ, home, read, list_names, find_program, lambda: _find_pip(read, is_anothers))


def _find_pip(read: Callable[[str], str | None], is_anothers: Callable[[str], bool]) -> str | None:
    """The source text with the default index of a pip on this machine: our interpreter's, or the system's."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("pip")
        if spec and spec.origin and (text := read(str(Path(spec.origin).with_name("") / _PIP_INDEX))):
            return text
    if text := read(f"/usr/lib/python3/dist-packages/pip/{_PIP_INDEX}"):
        return text
    with contextlib.suppress(ImportError, OSError, KeyError, zipfile.BadZipFile):
        import ensurepip

        for wheel in sorted(Path(ensurepip.__file__).with_name("_bundled").glob("pip-*.whl")):
            if is_anothers(str(wheel)):
                continue
            with zipfile.ZipFile(wheel) as packed:
                return packed.read(f"pip/{_PIP_INDEX}").decode("utf-8", "replace")
    return None
