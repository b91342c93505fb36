"""Answers become values or errors of the peer."""

import pytest

from holdfast.client.events.ordering import convert
from holdfast.errors import RemoteProtocolError
from holdfast.wire.files import FileBlock
from tests.support.rows import every_row


def test_unknown_members_are_ignored_and_base64_becomes_bytes() -> None:
    assert convert({"chunk": "aGk=", "eof": True, "later": 1}, FileBlock) == FileBlock(b"hi", True)


@every_row("answer", [None, {}, {"chunk": 1, "eof": True}, {"chunk": "!", "eof": True}, []])
def test_another_shape_is_the_fault_of_the_peer(answer: object) -> None:
    with pytest.raises(RemoteProtocolError):
        convert(answer, FileBlock)
