"""Data to typed values, also when many threads begin at once."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from holdfast import decoding
from tests.support.rows import every_row

# Threads that all use a type which nobody used before, again and again, each time a new type.
AT_ONCE = """
import sys, threading
import msgspec
from holdfast import decoding

def decoded(kind):
    return decoding.decode(b'{"one": {"a": 1, "b": 2}, "two": [{"a": 1, "b": 2}]}', kind)

def converted(kind):
    return decoding.convert({"one": {"a": 1, "b": 2}, "two": [{"a": 1, "b": 2}]}, kind)

use = globals()[sys.argv[1]]
sys.setswitchinterval(1e-6)
for _ in range(400):
    inner = msgspec.defstruct("Inner", [("a", int), ("b", int)], module=__name__)
    kind = msgspec.defstruct("Outer", [("one", inner), ("two", list[inner])], module=__name__)
    ready, failed = threading.Barrier(6), []

    def run():
        ready.wait()
        try:
            use(kind)
        except Exception as exc:
            failed.append(exc)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
"""


class Leaf(msgspec.Struct):
    number: int


class Row(msgspec.Struct):
    leaf: Leaf
    names: list[str] = []


def use_at_once(how: str) -> int:
    return subprocess.run(
        [sys.executable, "-c", AT_ONCE, how], capture_output=True, timeout=120, check=False
    ).returncode


@pytest.mark.parametrize("how", ["decoded", "converted"])
def test_threads_may_use_a_type_for_the_first_time_at_once(how: str) -> None:
    assert use_at_once(how) == 0


def test_it_is_made_from_json_and_from_data() -> None:
    wanted = Row(Leaf(3), ["x"])
    assert decoding.decode(b'{"leaf": {"number": 3}, "names": ["x"]}', Row) == wanted
    assert decoding.convert({"leaf": {"number": 3}, "names": ["x"]}, Row) == wanted
    assert decoding.decode_msgpack(msgspec.msgpack.encode(wanted), Row) == wanted
    assert decoding.convert(wanted, Row, from_attributes=True) == wanted


def test_a_decoder_is_made_once_for_a_type_and_its_hook() -> None:
    def hook(kind: type, value: Any) -> Any:
        return value

    assert decoding.decoder(Row) is decoding.decoder(Row)
    assert decoding.decoder(Row, hook) is decoding.decoder(Row, hook)
    assert decoding.decoder(Row, hook) is not decoding.decoder(Row)


@every_row(
    ("kind", "text", "wanted"),
    [
        (Leaf | list[str], '["a"]', ["a"]),
        (Leaf | list[str], '{"number": 1}', Leaf(1)),
        (dict[str, object], '{"a": [1]}', {"a": [1]}),
        (tuple[int, int], "[1, 2]", (1, 2)),
    ],
)
def test_a_type_need_not_be_a_class(kind: Any, text: str, wanted: object) -> None:
    assert decoding.decode(text, kind) == wanted


def test_strict_means_that_text_is_no_number() -> None:
    with pytest.raises(msgspec.ValidationError):
        decoding.convert({"number": "3"}, Leaf)
    assert decoding.convert({"number": "3"}, Leaf, strict=False) == Leaf(3)


def test_what_does_not_fit_is_refused_the_second_time_too() -> None:
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError, match="number"):
            decoding.decode(b'{"leaf": {}}', Row)
