"""Tests of ours run by an ordinary user although root runs the suite, for those in a process of their own.

The user may not be able to read the checkout, so that it has a copy of the tests and of what they need beside
the copy of the product (`tests/support/product_copy.py`).
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support import identity, patience, product_copy

_CHECKOUT: Final = Path(__file__).parents[2]
_COPIED: Final = ("tests", "tools", "pyproject.toml")
_ROOTS: Final = ("pytest", "pytest-timeout", "pytest-xdist", "anyio", "hypothesis", "psycopg", "websockets")
_PASSED: Final = re.compile(r"^PASSED (\S+)\.py::", re.MULTILINE)
SUITE_S: Final = patience.patient(400.0)


def passed_by_user(names: Iterable[str]) -> "Counter[str]":
    """How many tests pass in each module of these files; all of them must, and none be skipped."""
    done = _run_as_user(*names)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout, done.stdout
    return Counter(path.replace("/", ".") for path in _PASSED.findall(done.stdout))


def _run_as_user(*names: str) -> "subprocess.CompletedProcess[str]":
    """Run these tests, named as pytest has them, in one process of the ordinary user."""
    python, where = identity.python(identity.USER), _copy()
    home = identity.folder_for(identity.USER)
    try:
        return subprocess.run(
            identity.command_as(
                identity.USER,
                [python, "-m", "pytest", "-q", "-rp", "-p", "no:xdist", "--basetemp", f"{home}/t", *names],
            ),
            cwd=where,
            env={
                "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": str(home),
                "LANG": "C.UTF-8",
                "PYTHONPATH": f"{where}:{where / 'site'}",
                "PYTHONDONTWRITEBYTECODE": "1",
                patience.VARIABLE: os.environ[patience.VARIABLE],
            },
            capture_output=True,
            text=True,
            timeout=SUITE_S,
            check=False,
        )
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)  # it may hold what is very deep


def _copy() -> Path:
    """Made by whoever comes first; it goes with the copy of the product."""
    where = product_copy.folder() / "suite"
    with (product_copy.folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (where / "complete").exists():
            shutil.rmtree(where, ignore_errors=True)
            where.mkdir()
            for name in _COPIED:
                if (_CHECKOUT / name).is_dir():
                    unwanted = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(_CHECKOUT / name, where / name, ignore=unwanted)
                else:
                    shutil.copy(_CHECKOUT / name, where)
            product_copy.copy_distributions(_ROOTS, where / "site")
            product_copy.open_to_everybody(where)
            (where / "complete").touch()
    return where
