"""Counting values and depth before the parse agrees with what the parse would have made."""

import json
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from holdfast.errors import RemoteProtocolError
from holdfast.wire import rpc


class Document(NamedTuple):
    """A JSON text, and what there is to know about it without a parser."""

    text: str
    values: int = 1
    repeats: bool = False


def array(items: list[Document], space: str) -> Document:
    text = "[" + space + f"{space},{space}".join(item.text for item in items) + "]"
    return Document(text, 1 + sum(item.values for item in items), any(item.repeats for item in items))


def record(pairs: list[tuple[str, Document]], space: str) -> Document:
    body = f",{space}".join(f"{key}{space}:{space}{item.text}" for key, item in pairs)
    keys = [json.loads(key) for key, _ in pairs]
    repeats = len(set(keys)) < len(keys) or any(item.repeats for _, item in pairs)
    return Document("{" + body + space + "}", 1 + sum(item.values for _, item in pairs), repeats)


TEXTS = st.text(alphabet='a,:[]{}"\\\n é😀', max_size=6) | st.text(max_size=6)
STRINGS = st.builds(json.dumps, TEXTS, ensure_ascii=st.booleans())
KEYS = st.sampled_from(['"a"', '"\\u0061"', '"é"', '"\\u00e9"', '","', '""']) | STRINGS
NUMBERS = st.integers().map(str) | st.decimals(allow_nan=False, allow_infinity=False).map(str)
SPACES = st.sampled_from(["", "", " ", "\n\t\r "])
DOCUMENTS = st.recursive(
    (STRINGS | NUMBERS | st.sampled_from(["true", "false", "null"])).map(Document),
    lambda inner: (
        st.builds(array, st.lists(inner, max_size=6), SPACES)
        | st.builds(record, st.lists(st.tuples(KEYS, inner), max_size=4), SPACES)
    ),
    max_leaves=30,
)


@given(DOCUMENTS)
@settings(deadline=None)
@example(Document('[[],{},[ ],"[]"]', 5))
def test_the_count_before_parsing_is_the_count_of_values(document: Document) -> None:
    data = document.text.encode()
    assume(not document.repeats)
    with mock.patch.object(rpc, "MAX_VALUES", document.values):
        rpc.parse(data)
    with (
        mock.patch.object(rpc, "MAX_VALUES", document.values - 1),
        pytest.raises(RemoteProtocolError, match="exceeds the limit"),
    ):
        rpc.parse(data)


@given(DOCUMENTS)
@settings(deadline=None)
@example(Document('[{"a":1,"\\u0061":2}]', 4, repeats=True))
def test_a_repeated_key_is_always_found_and_never_imagined(document: Document) -> None:
    data = document.text.encode()
    if document.repeats:
        with pytest.raises(RemoteProtocolError, match="duplicate JSON object key"):
            rpc.parse(data)
    else:
        rpc.parse(data)


WRAPPERS = [
    ("[", "]"),
    ('{"k":', "}"),
    ('["[",', ',"]]"]'),
    ('{"[[":"]","k": ', ',"\\"]":"{}"}'),
    ("[\n", " ]"),
]


@given(st.lists(st.sampled_from(WRAPPERS), min_size=120, max_size=135))
@settings(deadline=None)
@example([WRAPPERS[0]] * rpc.MAX_DEPTH)
@example([WRAPPERS[0]] * (rpc.MAX_DEPTH + 1))
def test_the_limit_of_depth_is_exact_whatever_is_nested(layers: list[tuple[str, str]]) -> None:
    text = "0"
    for head, tail in layers:
        text = head + text + tail
    if len(layers) <= 127:
        rpc.parse(text.encode())
    else:
        with pytest.raises(RemoteProtocolError):
            rpc.parse(text.encode())


@given(DOCUMENTS)
@settings(deadline=None)
def test_what_was_parsed_can_be_sent_and_parsed_again(document: Document) -> None:
    assume(not document.repeats)
    value = rpc.parse(document.text.encode())
    assert rpc.decode(rpc.response(1, value)) == rpc.Response(1, value)


@given(st.binary(max_size=40) | DOCUMENTS.map(lambda document: document.text[:-1].encode()))
@settings(deadline=None)
@example(b"1e99999999999999999999")
@example(b'{"\\ud800":1,"\\ud800":2}')
def test_any_bytes_are_a_value_or_a_refusal_that_can_be_sent(data: bytes) -> None:
    try:
        rpc.parse(data)
    except RemoteProtocolError as exc:
        sent = rpc.decode(rpc.error(rpc.UNATTRIBUTED, -32600, str(exc)))
        assert isinstance(sent, rpc.ErrorResponse)
        assert sent.code == -32600
