"""What of the network a run had, and what went out of it, as the board is told of it. Pure module."""

from collections.abc import Sequence
from typing import Final

from holdfast.board.rules.rows import JsonObject
from holdfast.wire.processes import NetworkReport

MAX_ROWS: Final = 20  # of hosts, and of refused ones: an event is read by everybody who follows a board


def make_account(hosts: Sequence[str], told: NetworkReport | None, *, whole: bool) -> JsonObject:
    """The hosts that it was allowed, what passed to which, and what was refused; bounded.

    `counted` is false where nobody could count: it had the whole network, or its end was not seen.
    """
    found: JsonObject = {"whole": whole, "hosts": [*hosts[:MAX_ROWS]], "counted": told is not None}
    if told is None:
        return found
    sent: list[JsonObject] = [
        {
            "host": row.host,
            "port": row.port,
            "connections": row.connections,
            "sent": row.bytes_sent,
            "received": row.bytes_received,
            "from_ms": row.first_ms,
            "to_ms": row.last_ms,
        }
        for row in told.sent[:MAX_ROWS]
    ]
    refused: list[JsonObject] = [
        {"host": row.host, "port": row.port, "count": row.count, "rule": row.rule, "grant": row.grant}
        for row in told.refused[:MAX_ROWS]
    ]
    more = len(told.sent) + len(told.refused) - len(sent) - len(refused) + told.dropped
    return {**found, "sent": sent, "refused": refused, "more": more}
