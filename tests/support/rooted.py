"""A directory in which nobody but root can put or replace a program, as programs of ours have to lie in.

Only root can make one: a test that needs it is `root_only`.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_WHERE: Final = "/opt"  # not one of the places that are looked into without being named
REASON: Final = "a program that nobody else can replace takes root to put in place"


@contextlib.contextmanager
def rooted() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=_WHERE))
    try:
        made.chmod(0o755)
        yield made
    finally:
        shutil.rmtree(made)
