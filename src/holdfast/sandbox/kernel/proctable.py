"""The kernel's table of processes, as far as somebody needs it who must end them.

Standard library only, and little of it: the launcher imports this.
"""

import os
from typing import Final

PARENT: Final = 1  # fields of /proc/PID/stat after the name
SESSION: Final = 3


def processes(field: int, value: int) -> list[int]:
    """Every process, zombies aside, with this parent or session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[field]) == value and fields[0] != b"Z":
                found.append(int(name))
    return found
