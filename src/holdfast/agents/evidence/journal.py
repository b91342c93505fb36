"""Evidence as lines of JSON, so that whoever takes a worker over knows what was known. Pure module.

`seq` is the number of the output event that the evidence came from, 0 if it came from elsewhere: what is
read again after a restart is not counted twice.
"""

from typing import Final, NamedTuple

import msgspec

from holdfast.agents.evidence import evidence
from holdfast.agents.evidence.evidence import Claim, Evidence, Source

_CLAIMS: Final[dict[str, type[Claim]]] = {
    kind.__name__: kind
    for kind in (
        evidence.Ready,
        evidence.Progress,
        evidence.Working,
        evidence.Idle,
        evidence.Wants,
        evidence.Unread,
        evidence.Answered,
        evidence.Retrying,
        evidence.Denied,
        evidence.Obstructed,
        evidence.Requested,
        evidence.Used,
        evidence.Result,
        evidence.ToolFailed,
        evidence.Trouble,
        evidence.Drift,
        evidence.Exited,
        evidence.Vanished,
    )
}


class JournalEntry(NamedTuple):
    item: Evidence
    seq: int


class _Line(msgspec.Struct, omit_defaults=True):
    source: Source
    at: float
    claim: str
    fields: msgspec.Raw
    seen: str = ""
    seq: int = 0


_decoder = msgspec.json.Decoder(_Line)


def encode(entry: JournalEntry) -> bytes:
    """One line, with its end."""
    item = entry.item
    fields = msgspec.Raw(msgspec.json.encode(item.claim))
    line = _Line(item.source, item.at, type(item.claim).__name__, fields, item.seen, entry.seq)
    return msgspec.json.encode(line) + b"\n"


def decode(line: bytes) -> JournalEntry | None:
    """The entry of a line; None when it is torn, as the last one after a crash may be, or from elsewhere."""
    try:
        found = _decoder.decode(line)
        claim = msgspec.json.decode(found.fields, type=_CLAIMS[found.claim])
    except (msgspec.MsgspecError, KeyError):
        return None
    return JournalEntry(Evidence(found.source, found.at, claim, found.seen), found.seq)
