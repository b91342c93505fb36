"""Which tests start processes: `starts` among the properties of a test in a junit file.

Counted are those that Python starts. What they start themselves is theirs, and uvloop's own are not seen.
"""

import sys
from typing import Final

import pytest

EVENTS: Final = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}


class Starts:
    """A plugin for runs that write a junit file: everything that Python does is looked at, which costs."""

    def __init__(self) -> None:
        self._count = self._before = 0
        sys.addaudithook(self._look)

    def _look(self, event: str, args: object) -> None:
        if event in EVENTS:
            self._count += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._before = self._count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if self._count > self._before:
            item.user_properties.append(("starts", self._count - self._before))
