"""Whatever a program says to its proxy: it is answered or hung up on, and reaches nobody without a rule."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress import proxy, socks
from tests.support.egress import PUBLIC, Names, Proxied

PARTS = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"HEAD ", b"CONNECT ", b"OPTIONS ", b"PRI "),
        *(
            b"http://b.example/",
            b"http://b.example:8080",
            b"https://b.example/",
            b"/",
            b"*",
            b"b.example:443",
        ),
        *(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/2.0\r\n", b"\r\n", b"\n", b"\r\n\r\n"),
        *(b"Host: b.example\r\n", b"Host: 127.0.0.1\r\n", b"Host:\r\n", b"Connection: close\r\n"),
        *(b"Content-Length: 3\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
        *(b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"abc", b"\0"),
        *(b"\x05\x01\x00", b"\x05\x01\x00\x03", b"\x09b.example", b"\x01\xbb", b"\x05\x02\x00\x01"),
    ]
)
SAID = st.lists(PARTS | st.binary(max_size=5), max_size=12).map(b"".join)


@given(SAID)
def test_http_of_any_kind_reaches_nobody_without_a_rule(said: bytes) -> None:
    stage = Proxied(proxy.serve, allow=["a.example"], private=False, names=Names([PUBLIC]))
    answer = asyncio.run(stage.say(said, end=True))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert stage.names.asked == []
    assert not any(verdict.allowed for _, verdict in stage.told)


@given(SAID)
def test_socks_of_any_kind_reaches_nobody_without_a_rule(said: bytes) -> None:
    stage = Proxied(socks.serve, allow=["a.example"], private=False, names=Names([PUBLIC]))
    answer = asyncio.run(stage.say(b"\x05\x01\x00" + said, end=True))
    assert answer[:2] in (b"\x05\x00", b"\x05\xff")
    assert answer[3:4] != b"\0"
    assert stage.names.asked == []
