"""The scanner: statements and their places, in everything that Codex reads as TOML."""

import pytest

from holdfast.agentconfig.document import MAX_DEPTH, LineKind, Shape, Unparsable, scan
from tests.support.rows import every_row

ODD = (
    '\ufeffa = 1\r\n# c\r\n\r\n[ "x" . y ] # z\r\nb = """\n[k]\n""" # e\r\n'
    "c = {\n a.b = 1, # x\n d = [1,\n2],\n}\n\t e = 1979-05-27 07:32Z\n[[q]]\nf=''''it's''''"
)


def test_every_byte_belongs_to_exactly_one_item() -> None:
    document = scan(ODD)
    assert "".join(map(document.source, document.items)) == ODD.removeprefix("\ufeff")
    assert document.top == 1


def test_the_items_are_what_the_lines_mean() -> None:
    assert [(item.kind.name, item.path) for item in scan(ODD).items] == [
        ("ASSIGNMENT", ("a",)),
        ("COMMENT", ()),
        ("BLANK", ()),
        ("TABLE", ("x", "y")),
        ("ASSIGNMENT", ("x", "y", "b")),
        ("ASSIGNMENT", ("x", "y", "c")),
        ("ASSIGNMENT", ("x", "y", "e")),
        ("TABLES", ("q",)),
        ("ASSIGNMENT", ("q", "f")),
    ]


@every_row(
    ("written", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        (" a . b ", ("a", "b")),
        ('"a.b".c', ("a.b", "c")),
        ("'a\\b'", ("a\\b",)),
        ('"a\\"]\\u00e9"', ('a"]é',)),
        ('"\\x61\\e\\U0001F511"', ("a\x1b🔑",)),
        ('""', ("",)),
        ("1-2_3", ("1-2_3",)),
    ],
)
def test_a_key_is_decoded_in_any_spelling(written: str, path: tuple[str, ...]) -> None:
    assert scan(f"{written} = 1").items[0].path == path
    assert scan(f"[{written}]").items[0].path == path


@every_row(
    ("written", "plain"),
    [
        ("true", True),
        ("false", False),
        ("17", 17),
        ("1_000", 1000),
        ("-3", -3),
        ("1.5", None),
        ("1e5", None),
        ("0xDEAD_beef", None),
        ("-inf", None),
        ("9" * 30, None),
        ("1979-05-27T07:32:00-07:00", None),
        ("07:32", None),
        ('"a # b"', "a # b"),
        ("'a\\'", "a\\"),
        ('""', ""),
        ('"\\b\\t\\n\\f\\r\\"\\\\"', '\b\t\n\f\r"\\'),
        ('"""a"b""c"""', 'a"b""c'),
        ('""""""""', '""'),
        ('"""\r\na\\  \n  b \\""" """', 'ab """ '),
        ("'''\n[x]\n'''", "[x]\n"),
        ("[]", ()),
        ('["a", # ]\n "b",\n]', ("a", "b")),
        ("{ a = 1 }", None),
        ("{}", None),
    ],
)
def test_a_value_is_read_as_far_as_we_need_it(written: str, plain: object) -> None:
    document = scan(f"k = {written} # end\nnext = 1")
    first, second = document.items
    assert first.value
    assert document.source(first.value) == written
    assert document.plain(first.value) == plain
    assert second.path == ("next",)


def test_an_inline_table_may_span_lines_and_end_with_a_comma() -> None:
    document = scan('t = { # one\n a . "b" = [ {} ], # two\n c = {d=1},\n}')
    value = document.items[0].value
    assert value
    assert value.shape is Shape.TABLE
    assert [(key, document.source(node)) for key, node in value.entries] == [
        (("a", "b"), "[ {} ]"),
        (("c",), "{d=1}"),
    ]


@every_row(
    ("text", "line", "column"),
    [
        ("a = 1\nb =", 2, 4),
        ("a = 1\n  b = \n", 2, 7),
        ("\ufeffa = x", 1, 5),
        ("a", 1, 2),
        ("= 1", 1, 1),
        ("a. = 1", 1, 4),
        ("[a", 1, 3),
        ("[[a]", 1, 4),
        ("[a] b", 1, 5),
        ("a = 1 b = 2", 1, 7),
        ('a = "x', 1, 5),
        ('a = """x', 1, 5),
        ("a = '''x''", 1, 5),
        ('a = "\\q"', 1, 5),
        ('a = "\\uD800"', 1, 5),
        ('a = "\\U00110000"', 1, 5),
        ('"a\\', 1, 1),
        ("a = [1 2]", 1, 8),
        ("a = [1", 1, 7),
        ("a = { b = 1 c = 2 }", 1, 13),
        ("a = { b }", 1, 9),
        ("a = 1\rb = 2", 1, 6),
        ("a = 1\n\x00", 2, 1),
        ("a = '\x7f'", 1, 6),
        ("# \ud800", 1, 3),
        ("a = 1\n\ufeffb = 2", 2, 1),
        ("a = " + "[" * (MAX_DEPTH + 2), 1, MAX_DEPTH + 6),
    ],
)
def test_what_is_not_toml_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(Unparsable) as refusal:
        scan(text)
    assert (refusal.value.line, refusal.value.column) == (line, column)
    assert refusal.value.reason
    assert refusal.value.remedy


@every_row(
    ("text", "newline"),
    [("", "\n"), ("a=1", "\n"), ("a=1\nb=2\r\n", "\n"), ("a=1\r\nb=2\n", "\r\n"), ("\n\r\n", "\n")],
)
def test_the_line_end_of_a_document_is_that_of_its_first_line(text: str, newline: str) -> None:
    assert scan(text).newline == newline


def test_lines_are_counted_from_one() -> None:
    document = scan("a = '''\n\n'''\nb = 1")
    assert [document.line(item) for item in document.items] == [1, 4]


def test_duplicates_are_left_to_the_real_parser() -> None:
    assert [item.kind for item in scan("a = 1\na = 2\n[b]\n[b]").items] == [
        LineKind.ASSIGNMENT, LineKind.ASSIGNMENT, LineKind.TABLE, LineKind.TABLE,
    ]  # fmt: skip


def test_a_very_long_document_is_scanned_in_linear_time() -> None:
    text = 'a = """' + '\\"' * 100_000 + '"""\n' + "b = [" + "1, " * 50_000 + "]\n"
    assert len(scan(text).items) == 2
