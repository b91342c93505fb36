"""x. Pure module."""
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stream:
    kept: bytes = b""
    size: int = 0
    digest: bytes = b""
