"""The managed block: one test for each row of the conflict table, and what holds for all of them."""

import tomllib
from typing import Any

import pytest

from holdfast.agentconfig.block import Applied, Resolution, absolute, apply
from holdfast.agentconfig.document import Unparsable, scan
from holdfast.agentconfig.removal import ConflictKind, ReservedName, strip
from holdfast.agentconfig.settings import Key, Setting, Settings, Value, settings
from tests.support.rows import every_row

MODE = ("sandbox_mode",)
NETWORK = ("sandbox_workspace_write", "network_access")
ROOTS = ("sandbox_workspace_write", "writable_roots")
APPROVAL = ("approval_policy",)


def wish(**values: Value) -> Settings:
    """Keys with double underscores for dots."""
    return settings(Setting(tuple(name.split("__")), value) for name, value in values.items())


def trust(root: str) -> Settings:
    return settings([Setting(("projects", root, "trust_level"), "untrusted")])


WORKSPACE = wish(sandbox_mode="workspace-write", sandbox_workspace_write__network_access=True)


def applied(text: str, settings: Settings) -> Applied:
    """Apply, and check what holds for every text."""
    done = apply(text, settings, config_dir="/home/u/.codex")
    again = apply(done.text, settings, config_dir="/home/u/.codex")
    assert again.text == done.text
    assert not again.changed
    assert again.settings == done.settings
    assert strip(done.text).text == text
    tree = decoded(done.text)
    for item in done.settings.items:
        assert got(tree, item.key) == (list(item.value) if isinstance(item.value, tuple) else item.value)
    return done


def decoded(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"))


def got(tree: Any, key: Key) -> Any:
    for name in key:
        tree = tree[name]
    return tree


def kinds(done: Applied) -> set[ConflictKind]:
    return {conflict.kind for conflict in done.conflicts}


def test_an_empty_file_becomes_the_block_alone() -> None:
    done = applied("", WORKSPACE)
    lines = done.text.splitlines()
    assert lines[1:-1] == [
        'sandbox_mode = "workspace-write"',
        "sandbox_workspace_write.network_access = true",
    ]
    assert done.changed
    assert (done.conflicts, done.intents) == ((), ())


def test_the_marks_carry_product_name_version_and_digest() -> None:
    first, *_, last = applied("", WORKSPACE).text.splitlines()
    assert first.startswith("# >>> holdfast sandbox v1 ")
    assert last == "# <<< holdfast sandbox v1 <<<"


def test_a_root_block_stands_before_everything_with_one_blank_line_after_it() -> None:
    text = "# about\n\n[tui]\na = 1\n"
    assert applied(text, WORKSPACE).text.endswith("<<<\n\n" + text)


def test_each_concern_has_its_own_block() -> None:
    both = settings([*WORKSPACE.items, *trust("/r").items, Setting(("features", "memories"), False)])
    text = applied("a = 1\n", both).text
    assert [line.split()[3] for line in text.splitlines() if line.startswith("# >>>")] == [
        "sandbox", "trust", "features",
    ]  # fmt: skip


@every_row(
    "text",
    [
        "\ufeff",
        "\ufeffa = 1\n",
        "a = 1\r\nb = 2\r\n",
        "a = 1\nb = 2\r\n",
        "a = 1",
        "# only",
        "\n",
        "\n\na = 1\n",
        " ",
    ],
)
def test_mark_line_ends_and_blank_lines_survive(text: str) -> None:
    done = applied(text, WORKSPACE)
    assert done.text.startswith("\ufeff#" if text.startswith("\ufeff") else "#")
    assert done.text.endswith(text.removeprefix("\ufeff"))


def test_the_block_has_the_line_ends_of_the_file() -> None:
    assert "\n" not in applied("a = 1\r\n", WORKSPACE).text.replace("\r\n", "")


def test_without_settings_nothing_is_written() -> None:
    done = applied("a = 1\n", settings([]))
    assert not done.changed


# The rows of the conflict table.


def test_a_root_mode_of_the_user_becomes_a_comment_with_its_reason_and_an_intent() -> None:
    done = applied('model = "m"\nsandbox_mode = "danger-full-access" # mine\n', WORKSPACE)
    assert '\n#: sandbox_mode = "danger-full-access" # mine\n' in done.text
    assert [(intent.key, intent.value, intent.line) for intent in done.intents] == [
        (MODE, "danger-full-access", 2)
    ]
    assert kinds(done) == {ConflictKind.REPLACED}


@pytest.mark.parametrize("spelling", ['"sandbox_mode"', "'sandbox_mode'", '"sandb\\u006fx_mode"'])
def test_a_root_mode_is_found_in_any_spelling(spelling: str) -> None:
    assert applied(f'{spelling} = "danger-full-access"', WORKSPACE).intents


def test_a_stricter_mode_of_the_user_stays_in_force() -> None:
    done = applied('sandbox_mode = "read-only"\n', WORKSPACE)
    assert done.settings.get(*MODE) == "read-only"
    assert ConflictKind.STRICTER in kinds(done)


def test_an_owned_dotted_key_at_the_root_is_replaced_and_another_one_kept() -> None:
    text = (
        "sandbox_workspace_write.network_access = false\nsandbox_workspace_write.exclude_slash_tmp = true\n"
    )
    done = applied(text, WORKSPACE)
    assert decoded(done.text)["sandbox_workspace_write"] == {
        "network_access": True,
        "exclude_slash_tmp": True,
    }


@pytest.mark.parametrize(
    "header",
    [
        "[sandbox_workspace_write]",
        "[ sandbox_workspace_write ] # c",
        '["sandbox_workspace_write"]',
        "\t[ 'sandbox_workspace_write' ]#]",
    ],
)
def test_a_table_of_the_user_keeps_its_header_and_takes_our_keys_inside(header: str) -> None:
    text = f"[tui]\na = 1\n{header}\n# note\nnetwork_access = false\nexclude_slash_tmp = true\n[last]\n"
    done = applied(text, WORKSPACE)
    assert f"{header}\n# >>> holdfast sandbox" in done.text
    assert "sandbox_workspace_write.network_access" not in done.text.split("[tui]")[0]
    assert decoded(done.text)["sandbox_workspace_write"] == {
        "network_access": True,
        "exclude_slash_tmp": True,
    }


@every_row("end", ["", "\n", "\r\n", " # c", "\n\n"])
def test_a_header_may_end_the_file(end: str) -> None:
    done = applied(f"a = 1\n[sandbox_workspace_write]{end}", WORKSPACE)
    assert done.text.endswith("\n") == end.endswith("\n")


def test_an_inline_table_is_rewritten_as_dotted_keys() -> None:
    text = 'sandbox_workspace_write = { network_access = false, exclude_slash_tmp = true }\nmodel = "m"\n'
    done = applied(text, WORKSPACE)
    assert "\nsandbox_workspace_write.exclude_slash_tmp = true\n" in done.text
    assert kinds(done) == {ConflictKind.REWRITTEN}
    assert [(intent.key, intent.value) for intent in done.intents] == [(NETWORK, False)]


def test_an_inline_table_below_a_header_is_rewritten_there() -> None:
    text = '[projects]\n"/r" = { trust_level = "trusted", note = [1,\n 2] }\n"/o".trust_level = "trusted"\n'
    tree = decoded(applied(text, trust("/r")).text)
    assert tree["projects"] == {
        "/r": {"trust_level": "untrusted", "note": [1, 2]},
        "/o": {"trust_level": "trusted"},
    }


def test_nested_inline_tables_lose_only_what_is_ours() -> None:
    text = 'projects = { "/r" = { trust_level = "trusted", x = {} }, "/o".trust_level = "trusted" }\n'
    tree = decoded(applied(text, trust("/r")).text)
    assert tree["projects"] == {
        "/r": {"trust_level": "untrusted", "x": {}},
        "/o": {"trust_level": "trusted"},
    }


def test_writable_roots_of_the_user_stay_before_ours_absolute_and_once() -> None:
    text = (
        '[sandbox_workspace_write]\nwritable_roots = [ # mine\n "/b", "rel", "../up/./x", "~/h",\n "/b",\n]\n'
    )
    done = applied(text, wish(sandbox_workspace_write__writable_roots=("/a", "/b")))
    roots = ("/b", "/home/u/.codex/rel", "/home/u/up/x", "~/h", "/a")
    assert done.settings.get(*ROOTS) == roots
    relative = [c.detail for c in done.conflicts if c.kind is ConflictKind.RELATIVE_ROOT]
    assert relative == ["/home/u/.codex/rel", "/home/u/up/x"]
    assert ConflictKind.MERGED in kinds(done)


def test_a_default_profile_of_the_user_goes_when_we_speak_of_modes() -> None:
    done = applied('default_permissions = "mine"\n', WORKSPACE)
    assert "default_permissions" not in decoded(done.text)
    assert kinds(done) == {ConflictKind.RIVAL}
    assert done.intents[0].value == "mine"


def test_a_mode_of_the_user_goes_when_we_speak_of_profiles() -> None:
    done = applied('sandbox_mode = "danger-full-access"\n', wish(default_permissions=":workspace"))
    assert "sandbox_mode" not in decoded(done.text)
    assert kinds(done) == {ConflictKind.RIVAL}


@every_row(
    ("theirs", "ours", "decided"),
    [
        ('default_permissions = ":read-only"', wish(sandbox_mode="workspace-write"), "read-only"),
        ('sandbox_mode = "read-only"', wish(default_permissions=":workspace"), ":read-only"),
        ('sandbox_mode = "workspace-write"', wish(default_permissions=":danger-full-access"), ":workspace"),
        ('sandbox_mode = "read-only"', wish(default_permissions="holdfast"), ":read-only"),
        ('sandbox_mode = "workspace-write"', wish(default_permissions="holdfast"), "holdfast"),
        ('default_permissions = "x"\nsandbox_mode = "read-only"', WORKSPACE, "workspace-write"),
        ('default_permissions = ":danger-no-sandbox"', WORKSPACE, "workspace-write"),
        ("sandbox_mode = 3", WORKSPACE, "workspace-write"),
    ],
)
def test_strictness_is_compared_across_vocabularies(theirs: str, ours: Settings, decided: str) -> None:
    done = applied(theirs, ours)
    assert done.settings.items[0].value == decided


@every_row(
    "text",
    [
        "[permissions.holdfast]\n",
        "[permissions.'holdfast'.filesystem]\n",
        '[permissions]\nholdfast.extends = ":workspace"\n',
        "permissions = { holdfast = {} }\n",
        "permissions.holdfast = { a = 1 }\n",
        "permissions = { holdfast.a = 1 }\n",
    ],
)
def test_a_profile_of_the_user_with_our_name_is_refused(text: str) -> None:
    ours = wish(default_permissions="holdfast", permissions__holdfast__extends=":workspace")
    with pytest.raises(ReservedName) as refusal:
        apply(text, ours, config_dir="/c")
    assert refusal.value.line in (1, 2)
    assert applied(text, WORKSPACE).changed  # harmless while we do not need the name


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("[permissions]", ("permissions", "holdfast", "extends")),
        ("[features]", ("features", "memories")),
        ("[shell_environment_policy]", ("shell_environment_policy", "inherit")),
        ("[projects]", ("projects", "/r", "trust_level")),
    ],
)
def test_below_a_bare_header_of_the_user_our_keys_stand_inside(header: str, key: Key) -> None:
    done = applied(f"{header} # c\nother = 1\n", settings([Setting(key, "x")]))
    assert done.text.startswith(f"{header} # c\n# >>> holdfast ")


def test_another_profile_of_the_user_is_kept() -> None:
    text = "[permissions.other.filesystem]\n':root' = 'read'\n"
    done = applied(text, wish(default_permissions="holdfast", permissions__holdfast__extends=":workspace"))
    assert done.text.endswith(text)
    assert done.conflicts == ()


@every_row(
    ("theirs", "root"),
    [
        ('[projects."/a.b c"]', "/a.b c"),
        ("[projects.'/a.b c']", "/a.b c"),
        ('[ projects . "/a.b\\u0020c" ]', "/a.b c"),
        ("[projects.'C:\\Work\\Repo']", "c:/work/repo"),
        ('[projects."\\\\\\\\?\\\\C:\\\\Work\\\\Repo\\\\"]', "c:\\work\\repo"),
        ("[projects.'//host/share']", "//host/share"),
    ],
)
def test_a_project_is_compared_decoded_and_never_gets_a_second_table(theirs: str, root: str) -> None:
    text = f'{theirs}\ntrust_level = "trusted"\nx = 1\n'
    tree = decoded(apply(text, trust(root), config_dir="/c").text)
    assert [list(table.items()) for table in tree["projects"].values()] == [
        [("trust_level", "untrusted"), ("x", 1)]
    ]


@pytest.mark.parametrize("headers", [("[projects]", "[projects.'/r']"), ("[projects.'/r']", "[projects]")])
def test_of_two_headers_that_fit_the_nearer_one_takes_the_key(headers: tuple[str, str]) -> None:
    done = applied("\n".join(headers), trust("/r"))
    assert "[projects.'/r']\n# >>> holdfast trust" in done.text


def test_two_spellings_of_one_directory_both_lose_their_trust() -> None:
    text = "[projects.'C:\\R']\ntrust_level = 'trusted'\n[projects.'c:/r']\ntrust_level = 'trusted'\n"
    tree = decoded(apply(text, trust("c:/R"), config_dir="C:\\c").text)
    assert tree["projects"] == {"C:\\R": {"trust_level": "untrusted"}, "c:/r": {}}


def test_two_wishes_for_one_directory_become_one() -> None:
    both = settings([*trust("c:/r").items, *trust("C:\\R").items])
    done = apply("[projects.'c:\\r']\n", both, config_dir="/c")
    assert decoded(done.text) == {"projects": {"c:\\r": {"trust_level": "untrusted"}}}


def test_a_profile_that_codex_refuses_goes() -> None:
    done = applied('profile = "x"\n[profiles.x]\nmodel = "m"\n', WORKSPACE)
    assert "profile" not in decoded(done.text)
    assert kinds(done) == {ConflictKind.PROFILE}


def test_a_mode_inside_an_unused_profile_is_only_text() -> None:
    text = '[profiles.x]\nsandbox_mode = "danger-full-access"\n[tui]\nsandbox_mode = "read-only"\n'
    done = applied(text, WORKSPACE)
    assert done.text.endswith("\n\n" + text)
    assert done.conflicts == ()


@pytest.mark.parametrize("ours", [WORKSPACE, wish(approval_policy="never")])
def test_an_approval_that_codex_refuses_goes(ours: Settings) -> None:
    done = applied('approval_policy = "untrusted"\n', ours)
    assert decoded(done.text).get("approval_policy") in (None, "never")
    assert kinds(done) == {ConflictKind.UNSUPPORTED}
    assert done.intents[0].key == APPROVAL


def test_another_approval_stays_where_we_have_no_wish() -> None:
    assert applied('approval_policy = "on-request"\n', WORKSPACE).conflicts == ()


@every_row("text", ["a = ", "[x\n", 'a = "', "a = 1\rb = 2", "[[features]]\n"])
def test_a_file_that_does_not_parse_is_not_edited(text: str) -> None:
    with pytest.raises(Unparsable) as refusal:
        apply(text, wish(features__memories=False), config_dir="/c")
    assert (refusal.value.line, refusal.value.column) >= (1, 1)


def test_marks_inside_a_string_are_not_ours() -> None:
    block = applied("", WORKSPACE).text
    text = f"a = '''\n{block}'''\nb = \"\"\"\n{block.replace(chr(34), '')}\"\"\"\n"
    assert applied(text, WORKSPACE).conflicts == ()
    assert strip(text).text == text


# Values that are in the way as tables, or tables as values.


def test_a_table_where_we_have_a_value_is_taken_out_whole() -> None:
    text = "[features.network_proxy] # c\n# why\nenabled = true\nlist = [\n1]\n"
    text += "[features.network_proxy.x]\n[tui]\na = 1\n"
    done = applied(text, wish(features__network_proxy=True))
    assert decoded(done.text) == {"features": {"network_proxy": True}, "tui": {"a": 1}}


def test_dotted_keys_below_a_value_of_ours_are_taken_out() -> None:
    done = applied(
        "features.network_proxy.enabled = true\nfeatures.x = 1\n", wish(features__network_proxy=True)
    )
    assert decoded(done.text) == {"features": {"network_proxy": True, "x": 1}}


def test_a_value_where_we_have_a_table_is_taken_out() -> None:
    assert decoded(applied("features = 3\n", wish(features__memories=False)).text) == {
        "features": {"memories": False}
    }
    text = 'projects = { "/r" = 3 }\n'
    assert decoded(applied(text, trust("/r")).text) == {"projects": {"/r": {"trust_level": "untrusted"}}}


def test_a_secret_in_the_environment_is_not_an_intent_that_can_be_printed() -> None:
    done = applied(
        'shell_environment_policy.set.KEY = "hunter2"\n', wish(shell_environment_policy__set__KEY="x")
    )
    assert [intent.value for intent in done.intents] == [None]
    assert "hunter2" not in repr((done.conflicts, done.intents))


def reconciled(text: str, *items: tuple[tuple[str, ...], Value]) -> Resolution:
    wish = settings(Setting(key, value) for key, value in items)
    return Resolution(scan(text), wish, config_dir="/base")


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
    assert result.carried == [(("features", "x", "y"), "[ 0x1F, # c\n 'z' ]")]
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
    assert reconciled("sandbox_mode = 'read-only'\n", (("approval_policy",), "never")).out == []
