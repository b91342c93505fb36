"""A program that is owned from its start: when the block ends, it is killed with its whole process group."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def owned_program(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run `subprocess.Popen` with these options, in a new session.

    A signal that would end us is deferred until the program has its owner: if it ended us during the start,
    the program would be left without an owner.

    Raises:
        OSError: it cannot be started.
    """
    with _deferred_signals() as let_through:
        process = subprocess.Popen(argv, start_new_session=True, **options)  # noqa: S603 - the caller's words
        try:
            let_through()
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


@contextlib.contextmanager
def _deferred_signals() -> Iterator[Callable[[], None]]:
    """Defer the signals that would end us until the block calls the function that it is given."""
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}

    def let_through() -> None:
        while handlers:
            number, handler = handlers.popitem()
            signal.signal(number, handler)
        while came:
            signal.raise_signal(came.pop())

    if threading.current_thread() is threading.main_thread():  # signal handlers run in the main thread only
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # a program inherits an ignored signal
                handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield let_through
    finally:
        let_through()
