"""Evidence in one line: who says what. Pure module."""

import enum
from dataclasses import fields, is_dataclass

from holdfast.agents.evidence.evidence import Evidence


def in_words(evidence: Evidence) -> str:
    """Source, claim, and what differs from its defaults: `protocol Retrying attempt=2 of=5 failure=auth`."""
    claim = evidence.claim
    words = [evidence.source.name.lower(), type(claim).__name__]
    for field in fields(claim):
        value = getattr(claim, field.name)
        if value != field.default:
            words.append(f"{field.name}={_word(value)}")
    return " ".join(words)


def _word(value: object) -> str:
    match value:
        case enum.Enum():
            return str(value.value)
        case float():
            return f"{value:.6g}"
        case str():
            return repr(value)
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return "(" + " ".join(f"{name}={_word(part)}" for name, part in parts) + ")"
    return str(value)
