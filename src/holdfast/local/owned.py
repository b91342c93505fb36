"""A program with an owner from its first moment on: it is gone when the block ends, with all of its group."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def owned_program(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`subprocess.Popen` with these options, in a session of its own.

    A signal that would end us waits until the program has its owner: one that comes while it is being started
    would leave it to nobody.

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
    """Hold back what would end us until the block calls what it is given."""
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}

    def let_through() -> None:
        while handlers:
            number, handler = handlers.popitem()
            signal.signal(number, handler)
        while came:
            signal.raise_signal(came.pop())

    if threading.current_thread() is threading.main_thread():  # no other is interrupted
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # what is ignored, a program inherits
                handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield let_through
    finally:
        let_through()
