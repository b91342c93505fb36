"""Which bytes are which message, and which are none."""

import json
from decimal import Decimal

import pytest

from holdfast.errors import RemoteProtocolError
from holdfast.wire import rpc
from holdfast.wire.rpc import (
    MAX_VALUES,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode,
    parse,
)
from tests.support.rows import every_row


@every_row(
    ("text", "message"),
    [
        ('{"id":1,"method":"m"}', Request(1, "m")),
        ('{"id":1,"method":"m","params":null}', Request(1, "m")),
        ('{"id":1,"method":"m","params":[]}', Request(1, "m", [])),
        ('{"method":"m","id":"a","params":{"x":1}}', Request("a", "m", {"x": 1})),
        ('{"jsonrpc":3,"id":1,"method":"m","else":[]}', Request(1, "m")),
        ('{"id":1,"method":"m","result":2,"error":3}', Request(1, "m")),
        ('{"method":"m"}', Notification("m")),
        ('{"method":"m","params":[1]}', Notification("m", [1])),
        ('{"method":"m","result":2}', Notification("m")),
        ('{"method":"m","trace":"ignored"}', Notification("m")),
        ('{"id":1,"result":null}', Response(1, None)),
        ('{"id":1,"result":{},"error":{}}', Response(1, {})),
        ('{"id":1,"error":{"code":-1,"message":"x"}}', ErrorResponse(1, -1, "x")),
        ('{"id":-1,"error":{"code":1,"message":"","data":[2],"more":3}}', ErrorResponse(-1, 1, "", [2])),
        (' \r\n\t{ "method" : "é" }\n', Notification("é")),
    ],
)
def test_the_members_decide_the_kind(text: str, message: Message) -> None:
    assert decode(text.encode()) == message


@every_row(
    "text",
    [
        "",
        " ",
        "[]",
        '[{"id":1,"method":"m"}]',
        '"m"',
        "1",
        "null",
        "true",
        "{}",
        '{"id":1}',
        '{"params":1}',
        '{"id":1,"method":1}',
        '{"id":1,"method":null}',
        '{"method":["m"]}',
        '{"result":1}',
        '{"id":null,"result":1}',
        '{"id":1,"error":null}',
        '{"id":1,"error":"x"}',
        '{"id":1,"error":{}}',
        '{"id":1,"error":{"code":1}}',
        '{"id":1,"error":{"message":"x"}}',
        '{"id":1,"error":{"code":"1","message":"x"}}',
        '{"id":1,"error":{"code":1.0,"message":"x"}}',
        '{"id":1,"error":{"code":true,"message":"x"}}',
        '{"id":1,"error":{"code":9223372036854775808,"message":"x"}}',
        '{"id":1,"error":{"code":1,"message":2}}',
        '{"error":{"code":1,"message":"x"}}',
    ],
)
def test_what_fits_no_kind_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(text.encode())


@every_row("text", ["0", "-0", "-7", "9223372036854775807", "-9223372036854775808", '""', '"1"'])
def test_an_id_is_a_string_or_a_signed_64_bit_integer(text: str) -> None:
    message = decode(f'{{"id":{text},"method":"m"}}'.encode())
    assert isinstance(message, Request)
    assert (type(message.id), message.id) == (type(json.loads(text)), json.loads(text))


@every_row(
    "text",
    [
        "null",
        "true",
        "false",
        "1.0",
        "1e0",
        "9223372036854775808",
        "18446744073709551615",
        "-9223372036854775809",
        "1" * 5000,
        "[]",
        "{}",
    ],
)
@every_row("rest", ['"method":"m"', '"result":1', '"error":{"code":1,"message":"x"}'])
def test_any_other_id_is_refused(text: str, rest: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(f'{{"id":{text},{rest}}}'.encode())


@every_row(
    ("text", "parent", "state"),
    [
        ("null", None, None),
        ("{}", None, None),
        ('{"traceparent":null,"tracestate":null}', None, None),
        ('{"traceparent":"00-x","tracestate":"a=b"}', "00-x", "a=b"),
        ('{"traceparent":"not a trace id","more":1}', "not a trace id", None),
        ('{"tracestate":"a=b"}', None, "a=b"),
    ],
)
def test_a_trace_context_is_kept_whatever_its_text(text: str, parent: str | None, state: str | None) -> None:
    message = decode(f'{{"id":1,"method":"m","trace":{text}}}'.encode())
    assert message == Request(1, "m", None, parent, state)


@every_row("text", ['"x"', "1", "true", "[1]", '{"traceparent":1}', '{"tracestate":[]}'])
def test_a_trace_context_of_another_shape_spoils_the_message(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(f'{{"id":1,"method":"m","trace":{text}}}'.encode())


@every_row(
    "data",
    [
        b"{",
        b"[1,]",
        b'{"a" 1}',
        b"{'a':1}",
        b"01",
        b"1.",
        b"+1",
        b"NaN",
        b"-Infinity",
        b"[1]x",
        b"[1][2]",
        b'"\n"',
        b'"\\x41"',
        b"\x00",
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud83dx"',
        b'"\\ud83d\\u0041"',
        b'{"\\ud800":1}',
        b'{"\\ud800":1,"\\ud800":2}',
    ],
)
def test_what_is_not_json_text_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse(data)
    decode(rpc.error(rpc.UNATTRIBUTED, -32600, str(caught.value)))


@pytest.mark.parametrize("data", [b'"\\u0041\\ud83d\\ude00"', b'"\\\\ud800"', b'["\\u0041",1e999]'])
def test_an_escape_is_not_held_against_the_rest(data: bytes) -> None:
    assert parse(data) == json.loads(data, parse_float=Decimal)


@pytest.mark.parametrize(
    "data",
    [
        b'{"x":1,"x":1}',
        b'{"a":1,"x":1,"x":2,"a":3}',
        b'[{"a":{"x":1,"y":2,"\\u0078":3}}]',
        b'{"id":1,"method":"m","z":{"x":1,"x":2}}',
    ],
)
def test_a_repeated_key_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^duplicate JSON object key `x`$"):
        parse(data)


def test_the_same_key_in_two_objects_is_no_repetition() -> None:
    assert parse(b'[{"x":1},{"x":{"x":2}}]') == [{"x": 1}, {"x": {"x": 2}}]


@every_row(
    ("text", "again"),
    [
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("9" * 5000, "9" * 5000),
        ("0.1000000000000000000000000000000000001", "0.1000000000000000000000000000000000001"),
        ("1.10", "1.10"),
        ("-0.0", "-0.0"),
        ("1e400", "1E+400"),
        ("1E-400", "1E-400"),
        ("1e99999999999999999999", "1e99999999999999999999"),
        ("-1e-99999999999999999999", "-1e-99999999999999999999"),
    ],
    ids=lambda text: text[:30],
)
def test_a_number_of_any_size_survives(text: str, again: str) -> None:
    assert rpc.response(1, parse(text.encode())) == f'{{"id":1,"result":{again}}}'.encode()


@pytest.mark.parametrize("text", ["18446744073709551616", "-9223372036854775809", "1" * 21, "1" * 5000])
def test_an_integer_beyond_64_bits_is_never_an_int(text: str) -> None:
    assert parse(text.encode()) == Decimal(text)
    assert isinstance(parse(text.encode()), Decimal)


@pytest.mark.parametrize("text", ["18446744073709551615", "-9223372036854775808", "0"])
def test_an_integer_of_64_bits_is_an_int(text: str) -> None:
    assert (type(parse(text.encode())), parse(text.encode())) == (int, int(text))


ARRAY = "[%s]"
OBJECT = "{%s}"


def filled(shape: str, item: str, count: int) -> bytes:
    """A container of `count` items: as many values and one more."""
    items = (item if shape == ARRAY else f'"{n}":{item}' for n in range(count))
    return (shape % ",".join(items)).encode()


@pytest.mark.parametrize("shape", [ARRAY, OBJECT])
@pytest.mark.parametrize("item", ["0", '""', "{}", "[ ]", "{\n}", '",,[{"', '"\\"[,"'])
def test_the_limit_of_values_is_exact(shape: str, item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_VALUES", 300)
    assert len(parse(filled(shape, item, 299))) == 299
    with pytest.raises(RemoteProtocolError, match=r"^JSON-RPC message exceeds the limit of 300 JSON values$"):
        parse(filled(shape, item, 300))


def test_a_compact_array_at_the_real_limit() -> None:
    assert MAX_VALUES == 262_144
    assert len(parse(b"[" + b"0," * (MAX_VALUES - 2) + b"0]")) == MAX_VALUES - 1
    with pytest.raises(RemoteProtocolError, match="exceeds the limit of 262144 JSON values"):
        parse(b"[" + b"0," * (MAX_VALUES - 1) + b"0]")
    with pytest.raises(RemoteProtocolError, match="exceeds the limit of 262144 JSON values"):
        parse(b"[" + b"[]," * (4 * 1024 * 1024 // 3) + b"0]")


def test_one_huge_string_is_one_value() -> None:
    text = "[{,:" * (2 * MAX_VALUES)
    assert parse(json.dumps([text]).encode()) == [text]


def test_json_inside_a_string_does_not_count() -> None:
    inner = json.dumps(["x"] * (MAX_VALUES + 1))
    assert parse(json.dumps({"raw": inner}).encode()) == {"raw": inner}


@pytest.mark.parametrize(("head", "tail"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_the_limit_of_depth_is_exact(head: bytes, tail: bytes) -> None:
    parse(head * 126 + b"[]" + tail * 126)
    with pytest.raises(RemoteProtocolError):
        parse(head * 127 + b"[]" + tail * 127)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_absurd_depth_is_refused_before_the_parser_sees_it(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse(data)


def test_many_shallow_containers_are_not_deep() -> None:
    assert len(parse(b"[" + b"[[1]]," * 1000 + b"{}]")) == 1001


def test_a_message_over_the_limit_of_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rpc.MAX_MESSAGE_BYTES == 67_108_864
    monkeypatch.setattr(rpc, "MAX_MESSAGE_BYTES", 6)
    assert parse(b'"four"') == "four"
    with pytest.raises(RemoteProtocolError):
        parse(b'"four" ')


@every_row(
    ("data", "text"),
    [
        (rpc.request(1, "m"), '{"id":1,"method":"m"}'),
        (rpc.request("a", "m", {"x": b"hi"}), '{"id":"a","method":"m","params":{"x":"aGk="}}'),
        (
            rpc.request(1, "m", [], traceparent="00-t"),
            '{"id":1,"method":"m","params":[],"trace":{"traceparent":"00-t"}}',
        ),
        (rpc.notification("m"), '{"method":"m"}'),
        (rpc.notification("m", {"x": 1}), '{"method":"m","params":{"x":1}}'),
        (rpc.response(-7, None), '{"id":-7,"result":null}'),
        (rpc.response("", {"x": None}), '{"id":"","result":{"x":null}}'),
        (rpc.error(2, -32600, "no"), '{"error":{"code":-32600,"message":"no"},"id":2}'),
        (rpc.error(2, 1, "x\udce9"), '{"error":{"code":1,"message":"x?"},"id":2}'),
    ],
)
def test_members_are_written_in_the_usual_order_and_absent_ones_not_at_all(data: bytes, text: str) -> None:
    assert data == text.encode()
