"""Remove secrets from a line of a log. Pure module.

Names of variables and kinds of tokens stay, since they may be the reason; the rest of the secret is removed.
"""

import re
from collections.abc import Sequence
from typing import Final

HIDDEN: Final = "[redacted]"
MAX_LOOKED_AT: Final = 4096  # characters of a line; no more is shown, and patterns stay cheap on a huge one
MIN_SECRET: Final = 6  # characters: masking a shorter one would spoil ordinary words

_CONTROL: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|.)|[\x00-\x1f\x7f-\x9f]+"
)

# Every pattern keeps its first group and hides the rest of its match.
_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(Bearer |Basic |Token )(?!(?-i:[a-z]+)(?:\s|$))[\w.~+/=-]{8,}",  # an ordinary word is not a token
        r"\b((?:sk|pk|rk|ak)-)[\w-]{6,}",
        r"\b((?:gh[opusr]|github_pat|glpat|npm|pypi|hf|xox[abeoprs]|dop_v1)[_-])[\w-]{10,}",
        r"\b((?:sk|pk|rk|gsk|tvly)[_-])[\w-]{8,}",
        r"\b(AKIA|ASIA|AIza)[\w-]{12,}",
        r"\b(eyJ)[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?",
        r"(://[^/\s:@]{0,200}:)[^/\s@]{1,200}(?=@)",
        r"([?&](?:access_token|api_key|apikey|key|password|sig|signature|token)=)[^&\s\"']{1,400}",
        r"((?:api[_-]?key|secret|token|passw(?:or)?d|authorization|credential)s?[\"']{0,2} ?[:=] ?[\"']?)"
        r"(?!Bearer |Basic |Token |\d{1,9}\b|(?:null|true|false)\b)[^\s\"',;\[\]]{4,400}",
        r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*",
    )
)


def redact(text: str, secrets: Sequence[str] = ()) -> str:
    """The text without `secrets`, and without what looks like a secret by its shape or its name."""
    for known in sorted((one for one in secrets if len(one) >= MIN_SECRET), key=len, reverse=True):
        text = text.replace(known, HIDDEN)
    for secret in _SECRETS:
        text = secret.sub(rf"\1{HIDDEN}", text)
    return text


def redact_line(text: str, secrets: Sequence[str] = (), *, limit: int) -> str:
    """One redacted line of at most `limit` characters, without control sequences for a terminal."""
    # Mask before cutting: part of a key that lies across the cut must not remain.
    line = redact(_CONTROL.sub(" ", text[: MAX_LOOKED_AT + limit]), secrets).strip()
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
