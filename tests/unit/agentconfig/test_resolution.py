"""How user content and a wish are reconciled; the rows of the table are tested with the block."""

import pytest

from holdfast.agentconfig.conflict import ConflictKind
from holdfast.agentconfig.document import Unparsable, scan
from holdfast.agentconfig.resolution import Resolution, absolute, resolve
from holdfast.agentconfig.settings import Setting, Value, settings
from tests.support.rows import every_row


def reconciled(text: str, *items: tuple[tuple[str, ...], Value], keep_stricter: bool = True) -> Resolution:
    wish = settings(Setting(key, value) for key, value in items)
    return resolve(scan(text), wish, config_dir="/base", keep_stricter=keep_stricter)


@every_row(
    ("path", "base", "full"),
    [
        ("/x/../y", "/base", "/x/../y"),
        ("~/x", "/base", "~/x"),
        ("x", "/base", "/base/x"),
        ("./x//y/.", "/base/", "/base/x/y"),
        ("../..", "/base", "/"),
        ("../../../x", "/base/a", "/x"),
        ("C:\\x", "/base", "C:\\x"),
        ("x\\..\\y/z", "C:\\base", "C:\\base\\y\\z"),
        ("..\\..", "C:\\base", "C:\\"),
    ],
)
def test_a_relative_path_is_resolved_against_the_directory_of_the_file(
    path: str, base: str, full: str
) -> None:
    assert absolute(path, base) == full


def test_carried_values_keep_their_bytes() -> None:
    text = "features = { memories = true, x.y = [ 0x1F, # c\n 'z' ], }\n"
    result = reconciled(text, (("features", "memories"), False))
    assert result.carried == ((("features", "x", "y"), "[ 0x1F, # c\n 'z' ]"),)
    assert [(item.path, reason != "") for item, reason in result.out] == [(("features",), True)]


def test_lines_are_told_for_every_conflict() -> None:
    text = "\n\nprofile = 'x'\n[features]\n\nmemories = true\n"
    result = reconciled(text, (("features", "memories"), False))
    assert [(conflict.kind, conflict.line) for conflict in result.conflicts] == [
        (ConflictKind.PROFILE, 3),
        (ConflictKind.REPLACED, 6),
    ]


def test_an_array_of_tables_in_the_place_of_a_table_is_refused() -> None:
    with pytest.raises(Unparsable) as refusal:
        reconciled("a = 1\n[[projects]]\n", (("projects", "/r", "trust_level"), "untrusted"))
    assert refusal.value.line == 2


def test_an_array_of_tables_in_the_place_of_a_value_is_taken_out() -> None:
    result = reconciled("[[features.memories]]\na = 1\n", (("features", "memories"), False))
    assert [item.path for item, _ in result.out] == [("features", "memories"), ("features", "memories", "a")]


def test_roots_that_are_no_strings_are_not_merged() -> None:
    key = ("sandbox_workspace_write", "writable_roots")
    result = reconciled("sandbox_workspace_write.writable_roots = [1, '/a']\n", (key, ("/b",)))
    assert result.settings.get(*key) == ("/a", "/b")
    result = reconciled("sandbox_workspace_write.writable_roots = 1\n", (key, ("b",)))
    assert result.settings.get(*key) == ("/base/b",)


def test_the_same_level_is_not_stricter() -> None:
    result = reconciled("sandbox_mode = 'workspace-write'\n", (("sandbox_mode",), "workspace-write"))
    assert [conflict.kind for conflict in result.conflicts] == [ConflictKind.REPLACED]


def test_a_mode_of_the_user_alone_stays_where_we_have_no_wish() -> None:
    assert reconciled("sandbox_mode = 'read-only'\n", (("approval_policy",), "never")).out == ()
