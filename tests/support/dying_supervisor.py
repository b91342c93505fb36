"""A supervisor that is killed at one point of a start: python -m tests.support.dying_supervisor POINT HOME

The n-th call of the named function is the point, counted over the life of the process; `before` it is made,
or `after` it has its answer. Everything else is the supervisor that `holdfast worker supervise` runs.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from holdfast.agents import background, book, serving, supervisor
from holdfast.client.environment import Environment

POINTS: Final = {  # what is called, and whether it gets its answer
    "before-record": (book.Book, "add", False),
    "after-record": (book.Book, "add", True),
    "after-session": (background, "exec_server", True),
    "before-preflight": (supervisor, "preflight", False),
    "after-preflight": (supervisor, "preflight", True),
    "before-start": (Environment, "start", False),
    "after-start": (Environment, "start", True),
}


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(call: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    def plain(*args: Any, **kwargs: Any) -> Any:
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
    owner, name, after = POINTS[sys.argv[1]]
    setattr(owner, name, _deadly(getattr(owner, name), after=after))
    asyncio.run(serving.serve(Path(sys.argv[2])))


if __name__ == "__main__":
    main()
