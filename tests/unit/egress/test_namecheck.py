"""What a client sends is passed on if it is meant for the host that it was connected to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.namecheck import MAX_FIRST_LINE, NameCheck, Protocol, Refused
from tests.support.rows import every_row
from tests.unit.egress.test_clienthello import hello, server_name

HELLO = hello((0, server_name(b"A.example")))
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
# What nginx, Apache, Node, gunicorn or Python's own server take for the beginning of a request.
ODD_BEGINNINGS = (
    b"GET /" + b"a" * MAX_FIRST_LINE + b" HTTP/1.1\r\n",
    b"\r\n" * MAX_FIRST_LINE + b"GET / HTTP/1.1\r\n",
    b"GET\t/\tHTTP/1.1\r\n",
    b"GET\v/\fHTTP/1.1\n",
    b"GET\r/\rHTTP/1.1\n",
    b"GET\x1c/\x1fHTTP/1.1\n",
    b"GET\x85/\xa0HTTP/1.1\n",
    b" \t\x85GET / HTTP/1.1\n",
    b"GET\xe2\x80\x83/ HTTP/1.1\r\n",
    b"GET /\x01 HTTP/1.1\r\n",
    b"PROPFIND /\x01 HTTP/1.1\r\n",
    b"get / http/1.1\r\n",
    b"GET /\r\n",
    b"GET page\n",
    b"GET http://b/\n",
    b"get http://b/\n",
    b"PROPFIND /\r\n",
    b"GET / SIP/2.0\r\n",
    b"GET / RTSP/1.0\r\n",
    b"ANNOUNCE * RTSP/1.0\r\n",
    b"SOURCE * ICE/1.0\r\n",
    b"ANNOUNCE *RTSP/1.0\r\n",
    b"DESCRIBE *\r\n",
    b"CONNECT b:80\r\n",
    b"CONNECT b:80 HTTP/1.1\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1 80\r\nGET / HTTP/1.1\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET / HTTP/1.1\r\n",
)


@every_row(
    "record",
    [b"\x15\3\1\0\2\1\x5a", b"\x15\2\0\0\2\1\0", b"\x14\3\3\0\1\1", b"\x17\3\3\0\1\0"],
    ids=str,
)
def test_a_hello_after_another_record_is_refused(record: bytes) -> None:
    """Servers in Go pass over alerts: the name in the hello would be read by nobody here."""
    data = record + hello((0, server_name(b"b.example")))
    with pytest.raises(Refused) as caught:
        NameCheck("a.example", 8443).feed(data)
    assert caught.value.answer[:1] == b"\x15"
    check = NameCheck("a.example", 8443)
    assert check.feed(data[:1]) == b""
    with pytest.raises(Refused):
        check.feed(data[1:])


@every_row("sent", [b"\x15", b"\x15\x10\0", b"\x14\x7f"], ids=str)
def test_what_no_server_takes_for_a_record_passes(sent: bytes) -> None:
    check = NameCheck("a.example", 5000)
    assert check.feed(sent) + check.finish() == sent


@every_row(
    ("port", "sent", "protocol"),
    [
        (443, HELLO, Protocol.TLS),
        (8443, hello(), Protocol.TLS),
        (80, GET, Protocol.HTTP),
        (9418, GET.replace(b"a.example", b"a.example:9418"), Protocol.HTTP),
        (5432, b"\0\0\0\x08\x04\xd2\x16\x2f", Protocol.OTHER),
        (22, b"SSH-2.0-OpenSSH_9.2\r\n", Protocol.OTHER),
        (25, b"EHLO me\r\n", Protocol.OTHER),
        (9418, b"0032git-upload-pack /x\0host=y\0", Protocol.OTHER),
        (6379, b"*1\r\n$4\r\nPING\r\n", Protocol.OTHER),
        (22, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", Protocol.OTHER),
        (389, b"0\x0c\2\1\1\x60\7", Protocol.OTHER),
        (4222, b'CONNECT {"verbose":false}\r\n', Protocol.OTHER),
        (5222, b"<?xml version='1.0'?>", Protocol.OTHER),
        (5672, b"AMQP\0\0\x09\1", Protocol.OTHER),
        (6667, b"NICK a\r\nUSER a 0 * :http://a\r\n", Protocol.OTHER),
        (8020, b"hrpc\t\0\xdf", Protocol.OTHER),
        (11211, b"get key\r\n", Protocol.OTHER),
        (61613, b"CONNECT\naccept-version:1.2\n\n\0", Protocol.OTHER),
    ],
)
def test_it_is_recognised_and_passed_on(port: int, sent: bytes, protocol: Protocol) -> None:
    check = NameCheck("a.example", port)
    passed = b"".join(check.feed(sent[at : at + 3]) for at in range(0, len(sent), 3))
    assert (passed, check.protocol) == (sent, protocol)
    assert check.open == (protocol is not Protocol.HTTP)
    assert not check.reads_answers  # nothing depends on them any more


@every_row(
    ("port", "sent"),
    [
        (443, hello((0, server_name(b"other.example")))),
        (8443, hello((0, server_name(b"other.example")))),
        (443, hello((0, server_name(b"a.example\0.other.example")))),
        (443, hello((0, server_name(b"a.example")), (0xFE0D, b"x"))),
        (443, b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n"),
        (443, b"\x80\x2e\1\0\2" + b"\r\n\r\n"),
        (80, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (8080, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (8080, b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"),
        (8080, b"\r\n\r\nGET / HTTP/1.1\r\nHost: other.example\r\n\r\n"),
        (8080, b"\nGET / HTTP/1.1\r\nHost: other.example\r\n\r\n"),
        (8080, b"get / HTTP/1.1\r\nHost: b\r\n\r\n"),
        *((8080, begin + b"Host: b\r\n\r\n") for begin in ODD_BEGINNINGS),
    ],
)
def test_what_is_meant_for_another_is_refused(port: int, sent: bytes) -> None:
    for size in (len(sent), 1, 5):
        check = NameCheck("a.example", port)
        with pytest.raises(Refused) as caught:
            assert not [
                some for at in range(0, len(sent), size) if (some := check.feed(sent[at : at + size]))
            ]
        assert caught.value.why
        assert caught.value.answer[:1] in (b"\x15", b"H")


def test_a_text_that_stays_undecided_is_refused() -> None:
    check = NameCheck("a.example", 4000)
    assert check.feed(b"x" * MAX_FIRST_LINE) == b""
    with pytest.raises(Refused, match="does not end") as caught:
        check.feed(b"x")
    assert caught.value.answer.startswith(b"HTTP/1.1 403 ")


def test_a_refusal_is_told_in_the_clients_words() -> None:
    for port, sent, begin in (
        (443, HELLO, b"\x15\3\3"),
        (80, GET, b"HTTP/1.1 403 "),
        (22, b"SSH-2\r\n", b""),
    ):
        check = NameCheck("a.example", port)
        check.feed(sent)
        told = check.refusal("nobody is there").answer
        assert told.startswith(begin)
        assert bool(told) == bool(begin)


def test_words_without_an_end_are_passed_on_at_the_end() -> None:
    check = NameCheck("a.example", 4000)
    assert check.feed(b"quit") == b""
    assert check.finish() == b"quit"
    blank = NameCheck("a.example", 70)
    assert blank.feed(b"\r\n") == b""
    assert blank.finish() == b"\r\n"
    cut = NameCheck("a.example", 8080)
    assert cut.feed(b"get http://other.example/") == b""
    assert cut.finish() == b""
    half = NameCheck("a.example", 443)
    assert half.feed(HELLO[:20]) == b""
    assert half.finish() == b""


@given(st.lists(st.binary(max_size=40), max_size=10), st.sampled_from([80, 443, 8080]))
def test_nothing_passes_that_did_not_come(parts: list[bytes], port: int) -> None:
    check, passed = NameCheck("a.example", port), b""
    try:
        for part in parts:
            passed += check.feed(part)
    except Refused:
        pass
    sent = b"".join(parts)
    assert sent.startswith(passed)
    if port in (80, 443):
        assert passed == b"" or passed[:1] == b"\x16" or b"Host:" in passed


def test_only_the_answer_to_an_upgrade_is_listened_to() -> None:
    check = NameCheck("a.example", 80)
    assert check.reads_answers
    asked = b"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    assert check.feed(asked) == asked
    assert check.listens
    assert check.reads_answers
    assert check.hear(b"HTTP/1.1 101 Switching Protocols\r\n\r\n") == b""
    assert check.open
    assert not check.reads_answers
