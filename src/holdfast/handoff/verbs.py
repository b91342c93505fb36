"""What a worker may say about its run, and nothing else: its rows of the board's table. Pure module.

Arguments are held to their bounds before they are sent and again before they are carried out.
"""

from typing import Any, Final

import msgspec

from holdfast.board.rules import verbs
from holdfast.board.rules.rows import JsonObject
from holdfast.board.rules.verbs import Caller

VERBS: Final = verbs.verbs_of(Caller.WORKER)


def decode(verb: str, args: bytes | msgspec.Raw) -> Any:
    """Arguments as they came, as the verb's own struct.

    Raises:
        MethodNotFound: there is no such verb.
        UsageError: they are not its arguments.
    """
    row = verbs.named(verb, Caller.WORKER)
    return verbs.settle(row, verbs.decode(row, args), 0)


def convert(verb: str, args: JsonObject) -> Any:
    """The same for arguments that are values already. Raises as `decode` does."""
    row = verbs.named(verb, Caller.WORKER)
    return verbs.settle(row, verbs.convert(row, args), 0)
