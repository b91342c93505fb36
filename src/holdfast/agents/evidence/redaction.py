"""What a worker said, made fit to be kept and shown: short, on one line, without keys. Pure module."""

import re
from collections.abc import Sequence
from typing import Final

from holdfast.agents.evidence.evidence import MAX_SEEN
from holdfast.doctor.explain.redaction import HIDDEN, redacted

MAX_LOOKED_AT: Final = 4096  # characters; nobody sees more, and patterns stay cheap on a huge line
MIN_SECRET: Final = 6  # characters: masking a shorter one would spoil ordinary words

_CONTROL: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|.)|[\x00-\x1f\x7f-\x9f]+"
)


def redact(text: str, secrets: Sequence[str] = ()) -> str:
    """`text` with every one of `secrets`, and what looks like a key, masked."""
    for secret in sorted((one for one in secrets if len(one) >= MIN_SECRET), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return redacted(text)


def shown(text: str, secrets: Sequence[str] = (), *, limit: int = MAX_SEEN) -> str:
    """One redacted line of at most `limit` characters, with nothing in it that a terminal would obey."""
    # A key must not escape by lying across the cut: mask first, cut after.
    line = redact(_CONTROL.sub(" ", text[: MAX_LOOKED_AT + limit]), secrets).strip()
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
