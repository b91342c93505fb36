"""What a worker said, made fit to be kept and shown: short, on one line, without keys. Pure module."""

import re
from collections.abc import Sequence
from typing import Final

from holdfast.agents.evidence import MAX_SEEN

MASK: Final = "***"
MAX_LOOKED_AT: Final = 4096  # characters; nobody sees more, and patterns stay cheap on a huge line
MIN_SECRET: Final = 6  # characters: masking a shorter one would spoil ordinary words

_CONTROL: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|.)|[\x00-\x1f\x7f-\x9f]+"
)
_SECRETS: Final = (
    re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs]|hf|gsk|tvly)[-_][A-Za-z0-9_-]{8,}"),
    re.compile(r"\bgithub_pat_\w{20,}"),
    re.compile(r"\bAIza[0-9A-Za-z_-]{20,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\beyJ[\w-]{10,}\.[\w-]{5,}(?:\.[\w-]*)?"),
)
_NAMED: Final = re.compile(
    r"(?i)(\b(?:[\w-]*(?:api[_-]?key|access[_-]?key|token|secret|passwo?rd)|authorization|[?&]key)"
    r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?)(?!\d{1,9}\b|\*{3}|(?:null|true|false|bearer|basic)\b)[^\s\"',;&)}\]]{6,}"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)(?!\*{3})[\w.~+/=-]{8,}")
_IN_ADDRESS: Final = re.compile(r"(://)[^/\s:@]{1,200}:[^/\s@]{1,200}@")


def redact(text: str, secrets: Sequence[str] = ()) -> str:
    """`text` with every one of `secrets`, and what looks like a key, masked."""
    for secret in sorted((one for one in secrets if len(one) >= MIN_SECRET), key=len, reverse=True):
        text = text.replace(secret, MASK)
    for pattern in _SECRETS:
        text = pattern.sub(MASK, text)
    text = _NAMED.sub(lambda match: match[1] + MASK, text)
    text = _BEARER.sub(lambda match: match[1] + MASK, text)
    return _IN_ADDRESS.sub(rf"\1{MASK}@", text)


def shown(text: str, secrets: Sequence[str] = (), *, limit: int = MAX_SEEN) -> str:
    """One redacted line of at most `limit` characters, with nothing in it that a terminal would obey."""
    # A key must not escape by lying across the cut: mask first, cut after.
    line = redact(_CONTROL.sub(" ", text[: MAX_LOOKED_AT + limit]), secrets).strip()
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
