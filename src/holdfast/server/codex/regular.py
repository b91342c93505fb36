"""Reading small regular files, and nothing else that a path may name."""

import os
import stat


def read_regular(path: str, max_bytes: int) -> bytes | None:
    """At most `max_bytes + 1` bytes of the file: the one too many says that it is too large.

    None for a directory, FIFO, socket or device, which is neither opened nor waited for.

    Raises:
        OSError: it is missing or unreadable.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return file.read(max_bytes + 1)


def _open_without_waiting(path: str, flags: int) -> int:
    # Between the two checks the file may have been replaced by a FIFO without a writer.
    return os.open(path, flags | os.O_NONBLOCK)
