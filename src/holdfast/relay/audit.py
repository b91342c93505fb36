"""What happened at a relay, for whoever has to answer for it: one line of JSON an event.

Ids of tokens and registrations, names of tenants and environments, addresses of peers. Never a token, an
authorization, an address with its query, a key, or anything that was carried.
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
    """Write down an event; `fields` are names of `log.FIELDS`."""
    if event not in EVENTS:
        raise AssertionError(f"there is no event {event}")
    log.info(event, extra=fields)


def keep_in(path: Path) -> None:
    """From now on events are appended to this file, which is its owner's alone.

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
