"""Answers as JSON, with the schema version that `--json` has. Pure module."""

from typing import Final

import msgspec

from holdfast.errors import HoldfastError, kind

SCHEMA: Final = 1


def body(**members: object) -> bytes:
    return msgspec.json.encode({"schemaVersion": SCHEMA, **members})


def fault(exc: BaseException) -> bytes:
    """The error as JSON; of an error that is not ours, no details."""
    if not isinstance(exc, HoldfastError):
        return body(error={"code": "Internal", "message": "something went wrong here", "remedy": None})
    return body(error={"code": kind(exc), "message": str(exc), "remedy": exc.remedy})
