"""A supervisor that is killed at one point: python -m tests.support.dying_supervisor POINT HOME [N]

The n-th call of the named function is the point, counted over the life of the process; `before` it is made,
or `after` it has its answer. Everything else is the supervisor that `holdfast worker supervise` runs.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from holdfast.agents.supervisor import background, service, supervisor
from holdfast.agents.worker import book
from holdfast.client.environment import Environment
from holdfast.client.process import Process

POINTS: Final = {  # what is called, and whether it gets its answer
    "before-record": (book.WorkerRecords, "add", False),
    "after-record": (book.WorkerRecords, "add", True),
    "after-session": (background, "reach_exec_server", True),
    "before-preflight": (supervisor, "preflight", False),
    "after-preflight": (supervisor, "preflight", True),
    "before-start": (Environment, "start", False),
    "after-start": (Environment, "start", True),
}
WRITES: Final = {"before-write": (Process, "write", False), "after-write": (Process, "write", True)}


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(call: Callable[..., Any], *, after: bool, number: int) -> Callable[..., Any]:
    calls = itertools.count(1)

    def plain(*args: Any, **kwargs: Any) -> Any:
        if next(calls) != number:
            return call(*args, **kwargs)
        if not after:
            _die()
        answer = call(*args, **kwargs)
        if isinstance(answer, Awaitable):
            return waited(answer)
        _die()
        return answer

    async def waited(answer: Awaitable[Any]) -> Any:
        found = await answer
        _die()
        return found

    return plain


def main() -> None:
    owner, name, after = (POINTS | WRITES)[sys.argv[1]]
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    setattr(owner, name, _deadly(getattr(owner, name), after=after, number=number))
    asyncio.run(service.serve(Path(sys.argv[2])))


if __name__ == "__main__":
    main()
