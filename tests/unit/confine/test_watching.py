"""What is said of a watch, in whichever order its news are heard."""

import asyncio
import errno
from typing import Any

from holdfast.confine.watching import CommandWatch
from holdfast.local.tasks import TaskSet
from holdfast.sandbox.watcher import listener
from holdfast.wire.processes import WatchReport


class Watch(CommandWatch):
    """Without a sandbox, and with no watcher yet."""

    def __init__(self) -> None:
        nothing: Any = ()
        self._loop = asyncio.get_running_loop()
        self._report = self._new_report()
        self._inside = self._sock = self._then = None
        self._handed = self._pinned = nothing
        self._replaceable, self._timers = [], []
        self._watcher = 0
        self._tasks = TaskSet()
        self._closed = False


async def test_why_a_command_is_not_watched_is_said_also_when_its_end_is_heard_first() -> None:
    watch, ended = Watch(), []
    with watch.channel() as theirs:
        theirs.send(listener._ANSWER.pack(errno.EBUSY))
        watch.finish(lambda: ended.append(True))
    assert await watch.report() == WatchReport(False, "the kernel gives no listener: Device or resource busy")
    assert ended == [True]


async def test_a_command_that_sent_nothing_was_not_started() -> None:
    watch = Watch()
    with watch.channel():
        watch.close()
        assert await watch.report() == WatchReport(False, "the command was not started")
