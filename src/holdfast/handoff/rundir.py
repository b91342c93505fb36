"""What the directory of one run holds for its handoff (`local/rundirs.py` says where that is).

run.json      the grant with the token
board.sock    takes envelopes of this run's task, while its dispatcher lives
"""

from pathlib import Path
from typing import Final

import msgspec

from holdfast.handoff.envelope import Grant
from holdfast.local import rundirs
from holdfast.local.rundirs import prepare, remove

__all__ = ["GRANT", "SOCKET", "prepare", "put_grant", "remove"]

GRANT: Final = "run.json"
SOCKET: Final = "board.sock"


def put_grant(run: str, grant: Grant) -> Path:
    """Write down what the worker of this run signs with; where.

    Raises:
        OperationFailed: it cannot be written.
    """
    return rundirs.put(run, GRANT, msgspec.json.encode(grant))
