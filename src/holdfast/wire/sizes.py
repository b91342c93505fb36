"""Sizes that both sides must keep. Pure module."""

from typing import Final

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024  # the bound of the reference, so nothing larger is needed
MAX_PARTS: Final = 65_536  # of one WebSocket message; empty ones cost memory without counting as bytes
