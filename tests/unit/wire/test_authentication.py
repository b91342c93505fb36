"""The first request to a daemon of a home: only the token lets anybody in."""

import pytest

from holdfast.errors import PeerRefused, RemoteProtocolError
from holdfast.wire import authentication, rpc

TOKEN = "a1" * 32


def asked(params: object, method: str = authentication.METHOD) -> bytes:
    return rpc.request(7, method, params)


def test_the_token_lets_in() -> None:
    assert authentication.check(asked({"token": TOKEN}), TOKEN) == 7


@pytest.mark.parametrize(
    "line",
    [
        asked({"token": TOKEN[:-1]}),
        asked({"token": TOKEN + "0"}),
        asked({"token": ""}),
        asked({"token": "\u00e9"}),
        asked({"token": [TOKEN]}),
        asked({}),
        asked(None),
        asked([TOKEN]),
        asked({"token": TOKEN}, method="run"),
        asked({"token": TOKEN, "more": "x" * authentication.MAX_LINE}),
        rpc.notification(authentication.METHOD, {"token": TOKEN}),
    ],
)
def test_nothing_else_does(line: bytes) -> None:
    with pytest.raises(PeerRefused) as caught:
        authentication.check(line, TOKEN)
    assert TOKEN[:8] not in str(caught.value)


def test_what_is_no_message_is_said_to_be_none() -> None:
    with pytest.raises(RemoteProtocolError):
        authentication.check(b"hello", TOKEN)


def test_a_refusal_is_known_by_whoever_gets_it() -> None:
    said = rpc.decode(authentication.refusal(PeerRefused("no", remedy="try")))
    assert isinstance(said, rpc.ErrorResponse)
    assert authentication.is_refusal(said)
    assert not authentication.is_refusal(rpc.ErrorResponse(7, said.code, said.message, said.data))
    assert not authentication.is_refusal(rpc.ErrorResponse(said.id, said.code, said.message))
