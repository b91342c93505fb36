"""A dispatcher that kills itself at a step of a run: python -m tests.support.dying_dispatcher STEP HOME STORE

A step is the moment before or after one of its questions to the store or the supervisor. What it asks
round by round is not counted, since nobody can say how often that is.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from holdfast.board.asyncstore import AsyncStore
from holdfast.dispatch.dispatcher import DispatchOptions, serve
from holdfast.dispatch.supervisorclient import SupervisorClient

ALL_DONE: Final = 7  # its exit code when there are fewer steps than that

_left = 0


def _step() -> None:
    global _left
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def _dying(
    asked: Callable[..., Awaitable[Any]], counts: Callable[..., bool]
) -> Callable[..., Awaitable[Any]]:
    async def ask(self: object, *args: Any, **more: Any) -> Any:
        counted = counts(sys._getframe(1).f_code.co_qualname, *args)
        if counted:
            _step()
        answer = await asked(self, *args, **more)
        if counted:
            _step()
        return answer

    return ask


def _of_a_run(caller: str, question: Callable[..., object], *_: object) -> bool:
    of_a_run = caller.startswith(("RunDriver._", "RunDriver.drive", "Dispatcher._claim"))
    return of_a_run and question.__qualname__ != "RunDriver.ingest"


def main() -> None:
    global _left
    _left = int(sys.argv[1])
    AsyncStore.ask = _dying(AsyncStore.ask, _of_a_run)  # type: ignore[assignment, method-assign]
    SupervisorClient._call = _dying(SupervisorClient._call, lambda _, method, *__: method != "status")  # type: ignore[assignment, method-assign]
    asyncio.run(serve(Path(sys.argv[2]), sys.argv[3], DispatchOptions(("b",), once=True)))
    sys.exit(ALL_DONE)


if __name__ == "__main__":
    main()
