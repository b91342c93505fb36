"""Answers as JSON."""

import msgspec

from holdfast.commands import output
from holdfast.errors import (
    Conflict,
    HoldfastError,
    IllegalTransition,
    NotFound,
    Unreachable,
    UsageError,
    face,
)
from holdfast.web import replies
from tests.support.rows import every_row


def test_the_schema_is_the_one_of_the_commands() -> None:
    assert replies.SCHEMA == output.SCHEMA
    assert msgspec.json.decode(replies.body(a=1)) == {"schemaVersion": replies.SCHEMA, "a": 1}


@every_row(
    ("cls", "status"),
    [(UsageError, 400), (NotFound, 404), (Conflict, 409), (IllegalTransition, 409), (Unreachable, 503)],
)
def test_an_error_has_its_status_and_says_what_to_do(cls: type[HoldfastError], status: int) -> None:
    exc = cls("no", remedy="do that")
    assert face(exc).http == status
    error = msgspec.json.decode(replies.fault(exc))["error"]
    assert error == {"code": cls.__name__, "message": "no", "remedy": "do that"}


def test_of_an_error_that_is_not_ours_nothing_is_told() -> None:
    exc = RuntimeError("/home/somebody/secret")
    assert b"secret" not in replies.fault(exc)
