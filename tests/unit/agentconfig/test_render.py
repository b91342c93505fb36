"""Owned keys as TOML, and the lines that mark our work."""

import tomllib

import pytest

from holdfast.agentconfig import render
from holdfast.agentconfig.settings import Value
from tests.support.rows import every_row

HOSTILE = 'a"\\\b\t\n\f\r\x00\x1b\x7fé🔑]#='


@every_row(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (7, "7"),
        ("x", '"x"'),
        ((), "[]"),
        (("/a b", 'c"d'), '["/a b", "c\\"d"]'),
    ],
)
def test_a_value_stands_on_one_line(value: Value, text: str) -> None:
    assert render.value(value) == text


def test_any_string_and_any_key_can_be_read_back() -> None:
    line = f"{render.key(('plain', HOSTILE, ''))} = {render.string(HOSTILE)}"
    assert "\n" not in line
    assert tomllib.loads(line) == {"plain": {HOSTILE: {"": HOSTILE}}}


def test_a_block_knows_its_own_marks() -> None:
    first, *body, last = render.block("trust", ["a = 1", "b = 2"], "\r\n").splitlines(keepends=True)
    begin = render.as_begin(first)
    assert begin == render.Begin("trust", render.FORMAT, render.digest("".join(body)))
    assert render.as_end(last) == "trust"
    assert render.as_end(first) is None
    assert render.as_begin(last) is None


def test_the_digest_does_not_mind_line_ends_but_minds_everything_else() -> None:
    assert render.digest("a = 1\r\n") == render.digest("a = 1\n")
    assert render.digest("a = 1\n") != render.digest("a = 2\n")


@pytest.mark.parametrize(
    ("source", "count"), [("a = 1\n", 1), ("a = 1", 1), ("a = '''\n\u2028\r\n'''\n", 3), ("a = [\n\n]", 3)]
)
def test_a_record_keeps_the_lines_and_says_how_many(source: str, count: int) -> None:
    first, rest = render.record(source, "why", "\n").split("\n", 1)
    assert render.as_record(first) == count
    assert "".join(line.removeprefix(render.OUT) for line in rest.split("\n")) == source.replace("\n", "")


@pytest.mark.parametrize(
    "comment", ["# holdfast", "# >>> holdfast other v1 >>>", " # <<< holdfast trust v1 <<<"]
)
def test_another_comment_is_not_ours(comment: str) -> None:
    assert render.as_begin(comment) is None
    assert render.as_end(comment) is None
    assert render.as_record(comment) is None


def test_a_mark_of_an_older_version_is_still_known() -> None:
    assert render.as_begin("# >>> holdfast sandbox v0 >>>\n") == render.Begin("sandbox", 0, None)
    assert render.as_end("# <<< holdfast sandbox v0 <<<\n") == "sandbox"
