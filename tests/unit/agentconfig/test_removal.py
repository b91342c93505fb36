"""What is taken away again: our blocks, whole or broken, and the comments that hold the user's lines."""

import pytest

from holdfast.agentconfig import render
from holdfast.agentconfig.conflict import ConflictKind
from holdfast.agentconfig.document import Unparsable
from holdfast.agentconfig.removal import splice, strip
from tests.support.rows import every_row

BODY = ['sandbox_mode = "read-only"', "sandbox_workspace_write.network_access = true"]
BLOCK = render.block("sandbox", BODY, "\n")
BEGIN, *LINES, END = BLOCK.splitlines(keepends=True)
OTHER = render.block("features", ["features.memories = false"], "\n")


def record(line: str) -> str:
    return render.record(line, "why", "\n")


def kinds(text: str) -> list[ConflictKind]:
    return [conflict.kind for conflict in strip(text).conflicts]


def test_edits_are_applied_in_order_of_place() -> None:
    assert splice("abcdef", [(4, 5, "X"), (1, 2, ""), (0, 0, "^"), (6, 6, "$")]) == "^acdXf$"


@every_row(
    ("text", "left"),
    [
        (BLOCK, ""),
        (BLOCK + "\n", ""),
        (BLOCK + "\n\na = 1\n", "\na = 1\n"),
        (BLOCK + OTHER + "\na = 1", "a = 1"),
        ("\ufeff" + BLOCK + "\na = 1\n", "\ufeffa = 1\n"),
        (BLOCK.replace("\n", "\r\n") + "\r\na = 1\r\n", "a = 1\r\n"),
        ("[sandbox_workspace_write]\n" + BLOCK + "\na = 1\n", "[sandbox_workspace_write]\n\na = 1\n"),
        ("[x]\n" + BLOCK.rstrip("\n"), "[x]"),
        ("[x]\r\n" + BLOCK.replace("\n", "\r\n").rstrip("\r\n"), "[x]"),
        ("a = 1\n[[x]]\nb = 1\n" + BLOCK + "c = 1\n", "a = 1\n[[x]]\nb = 1\nc = 1\n"),
        (BLOCK + "\n" + BLOCK + "\na = 1\n", "a = 1\n"),
        ("a = 1\n", "a = 1\n"),
        ("", ""),
    ],
)
def test_a_whole_block_goes_without_a_word(text: str, left: str) -> None:
    assert strip(text).text == left
    assert kinds(text) == []


def test_a_block_that_was_edited_goes_but_what_is_not_ours_in_it_stays() -> None:
    text = BEGIN + 'sandbox_mode = "danger-full-access"\nfeatures.goals = true\n# hi\n' + END + "\na = 1\n"
    assert strip(text).text == "features.goals = true\n# hi\na = 1\n"
    assert kinds(text) == [ConflictKind.EDITED]


def test_marks_that_enclose_a_table_of_the_user_do_not_take_it_along() -> None:
    text = "".join([BEGIN, *LINES, '[profiles.x]\nsandbox_mode = "read-only"\n', END])
    assert strip(text).text == '[profiles.x]\nsandbox_mode = "read-only"\n'
    assert kinds(text) == [ConflictKind.EDITED]


def test_a_block_of_another_format_is_taken_by_its_keys() -> None:
    old = BLOCK.replace(" v1 ", " v0 ")
    assert strip("[tui]\na = 1\n" + old).text == "[tui]\na = 1\n"
    assert kinds(old) == [ConflictKind.OLD_FORMAT]
    assert (
        strip("# >>> holdfast sandbox v0 >>>\n" + "".join(LINES) + "# <<< holdfast sandbox v0 <<<\n").text
        == ""
    )


def test_a_block_below_a_table_goes_although_its_keys_were_read_into_that_table() -> None:
    text = "[tui]\na = 1\n" + BLOCK + "b = 2\n"
    assert strip(text).text == "[tui]\na = 1\nb = 2\n"
    assert strip(text.replace('"read-only"', '"other"')).text == "[tui]\na = 1\nb = 2\n"


def test_of_two_begins_the_first_loses_only_the_lines_that_only_we_write() -> None:
    text = "".join([BEGIN, *LINES, "model = 1\n", BLOCK, "a = 1\n"])
    assert strip(text).text == "model = 1\na = 1\n"
    assert kinds(text) == [ConflictKind.UNPAIRED]


@every_row(
    ("below", "left"),
    [
        ("".join(LINES), ""),
        ("".join(LINES) + "\n" + LINES[0], "\n" + LINES[0]),
        ("sandbox_mode='x'\n" + LINES[1], "sandbox_mode='x'\n" + LINES[1]),
        (LINES[0] + "# mine\n" + LINES[1], "# mine\n" + LINES[1]),
        (LINES[0] + "[tui]\na = 1\n", "[tui]\na = 1\n"),
        ("a = 1\n", "a = 1\n"),
    ],
)
def test_a_begin_without_its_end_never_takes_the_rest_of_the_file(below: str, left: str) -> None:
    assert strip(BEGIN + below).text == left
    assert kinds(BEGIN + below) == [ConflictKind.UNPAIRED]


def test_an_end_without_its_begin_goes_alone() -> None:
    assert strip("a = 1\n" + END + "b = 1\n").text == "a = 1\nb = 1\n"
    assert kinds(END) == [ConflictKind.UNPAIRED]


def test_an_end_of_another_name_closes_nothing() -> None:
    text = BEGIN + LINES[0] + "# <<< holdfast trust v1 <<<\nb = 1\n"
    assert strip(text).text == "b = 1\n"
    assert kinds(text) == [ConflictKind.UNPAIRED, ConflictKind.UNPAIRED]


@every_row(
    "line", ["a = 1\n", "a = 1", " a = '''\n\n# x\n''' # c\r\n", "[x]\n", "[[x]] # c\n", "a = { b = 1,\n}\n"]
)
def test_what_was_taken_out_comes_back(line: str) -> None:
    text = "# c\n" + record(line)
    assert strip(text).text == "# c\n" + line
    assert kinds(text) == []


@every_row(
    ("live", "out"),
    [
        ("a = 2\n", "a = 1\n"),
        ("a.b = 2\n", "a = 1\n"),
        ("a = {}\n", "a.b = 1\n"),
        ("[a]\n", "[a]\n"),
        ("a = 2\n", "[a]\n"),
        ("a = 2\n", "[a.b]\n"),
        ("a.c = 2\n", "a = { c = 1 }\n"),
    ],
)
def test_what_has_been_set_again_since_does_not_come_back(live: str, out: str) -> None:
    text = live if out.startswith("[") else record(out) + live
    text += record(out) if out.startswith("[") else ""
    assert strip(text).text == live
    assert kinds(text) == [ConflictKind.STALE]


def test_a_table_of_that_name_elsewhere_keeps_a_key_from_coming_back() -> None:
    text = record("a = 1\n") + "[a]\nb = 1\n"
    assert strip(text).text == "[a]\nb = 1\n"


def test_keys_follow_their_header_back_or_not_at_all() -> None:
    records = record("[x]\n") + record("a = 1\n") + "# c\n" + record("b = 1\n")
    assert strip(records).text == "[x]\na = 1\n# c\nb = 1\n"
    assert strip("x = 1\n" + records).text == "x = 1\n# c\n"
    assert strip("x = 1\n" + records + "[y]\n" + record("a = 1\n")).text == "x = 1\n# c\n[y]\na = 1\n"


def test_what_was_there_twice_comes_back_twice() -> None:
    assert strip(record("a = 1\n") + record("a = 2\n")).text == "a = 1\na = 2\n"


def test_a_second_element_of_an_array_of_tables_comes_back() -> None:
    assert strip("[[x]]\n" + record("[[x]]\n")).text == "[[x]]\n[[x]]\n"


@every_row(
    "text",
    [
        "# holdfast v1 took out 2 lines: why\n#: a = [\n",
        "# holdfast v1 took out 2 lines: why\n#: a = [\nb = 1\n",
        "# holdfast v1 took out 1 line: why\n#: a = [\n",
        "# holdfast v1 took out 1 line: why\n#: # >>> holdfast sandbox v1 >>>\n",
        "# holdfast v1 took out 1 line: why\n",
        "# holdfast v1 took out 1 line: why\n\n",
        "# holdfast v1 took out 1 line: why\nb = 1\n",
    ],
)
def test_a_damaged_record_stays_a_comment(text: str) -> None:
    assert strip(text).text == text
    assert kinds(text) == [ConflictKind.DAMAGED]


def test_what_is_not_toml_is_not_touched() -> None:
    with pytest.raises(Unparsable):
        strip(BLOCK + "a =\n")
