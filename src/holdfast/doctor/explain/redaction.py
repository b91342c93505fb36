"""A line of somebody's log without what opens doors. Pure module.

Names of variables and kinds of tokens stay, since they may be the reason; the rest of the secret goes.
"""

import re
from typing import Final

HIDDEN: Final = "[redacted]"

# Every pattern keeps its first group and hides the rest of what it fits.
_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(Bearer |Basic |Token )(?!(?-i:[a-z]+)(?:\s|$))[\w.~+/=-]{8,}",  # a word is no token
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


def redacted(line: str) -> str:
    """The line with every secret that can be told by its shape or by its name taken out."""
    for secret in _SECRETS:
        line = secret.sub(rf"\1{HIDDEN}", line)
    return line
