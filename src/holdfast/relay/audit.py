"""The audit log of a relay: one line of JSON per event.

It holds ids of tokens and registrations, names of tenants and environments, and addresses of peers. It never
holds a token, an authorization, an address with its query, a key, or anything that was carried.
"""

import logging
import os
from pathlib import Path
from typing import Final

from holdfast.errors import StartupError
from holdfast.log import JsonFormatter

log = logging.getLogger(__name__)

EVENTS: Final = frozenset(
    {
        "executor.connected",
        "executor.disconnected",
        "executor.refused",
        "executor.registered",
        "harness.authorized",
        "harness.connected",
        "harness.disconnected",
        "harness.refused",
        "harness.rejected",
        "harness.validated",
        "relay.started",
        "relay.stopped",
        "token.refused",
        "token.revoked",
    }
)


def record(event: str, **fields: str) -> None:
    """Log an event; the names of `fields` are among `log.FIELDS`."""
    if event not in EVENTS:
        raise AssertionError(f"there is no event {event}")
    log.info(event, extra=fields)


def keep_in(path: Path) -> None:
    """Append events to this file from now on; only its owner may access it.

    Raises:
        StartupError: it cannot be written.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(fd, 0o600)
    except OSError as exc:
        raise StartupError(
            f"cannot write {path}: {exc.strerror}", remedy="give --audit-log another file"
        ) from None
    handler = logging.StreamHandler(open(fd, "a", encoding="utf-8"))  # noqa: SIM115 - as long as we run
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
