"""Sizes that both sides keep to. Pure module."""

from typing import Final

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024  # what the reference accepts, so nobody needs to send more
MAX_PARTS: Final = 65_536  # of one message of a WebSocket; empty ones cost memory without counting as bytes
