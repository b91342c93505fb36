"""Descriptors of this process that are left open."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def none_left_open() -> Iterator[None]:
    """Whatever is opened inside is closed there. What earlier tests left open may be closed meanwhile."""
    before = _find_open()
    yield
    assert _find_open() - before == set()


def _find_open() -> set[tuple[str, str]]:
    """Each with what it is open on."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found
