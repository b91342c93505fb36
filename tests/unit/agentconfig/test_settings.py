"""Owned keys: which are ours, in which block, in which order."""

import json
import tomllib

import pytest

from holdfast.agentconfig.settings import (
    BLOCKS,
    FORMAT,
    OUT,
    Begin,
    Effective,
    Setting,
    Settings,
    Value,
    block_of,
    differences,
    digest,
    flatten,
    is_owned,
    parse_begin,
    parse_end,
    parse_record,
    render_block,
    render_key,
    render_record,
    render_string,
    render_value,
    settings,
)
from holdfast.errors import UsageError
from tests.support.rows import every_row

MODE = Setting(("sandbox_mode",), "workspace-write")
NETWORK = Setting(("sandbox_workspace_write", "network_access"), True)
TRUST = Setting(("projects", "/a.b", "trust_level"), "untrusted")
MEMORIES = Setting(("features", "memories"), False)
INHERIT = Setting(("shell_environment_policy", "inherit"), "core")
HOSTILE = 'a"\\\b\t\n\f\r\x00\x1b\x7fé🔑]#='
ROOTS = ("sandbox_workspace_write", "writable_roots")
LEGACY = settings([Setting(("sandbox_mode",), "workspace-write"), Setting(ROOTS, ("/a",))])
PROFILE = settings(
    [
        Setting(("default_permissions",), "holdfast"),
        Setting(("permissions", "holdfast", "network", "enabled"), False),
    ]
)


@every_row(
    ("key", "block"),
    [
        (("sandbox_mode",), "sandbox"),
        (("default_permissions",), "sandbox"),
        (("approval_policy",), "sandbox"),
        (("sandbox_workspace_write", "writable_roots"), "sandbox"),
        (("permissions", "holdfast", "extends"), "sandbox"),
        (("permissions", "holdfast", "network", "domains", "a.example"), "sandbox"),
        (("projects", "/r", "trust_level"), "trust"),
        (("features", "multi_agent"), "features"),
        (("check_for_update_on_startup",), "features"),
        (("shell_environment_policy", "set", "A"), "environment"),
    ],
)
def test_an_owned_key_has_its_block(key: tuple[str, ...], block: str) -> None:
    assert is_owned(key)
    assert block_of(key) == block


@every_row(
    "key",
    [
        (),
        ("model",),
        ("profile",),
        ("features",),
        ("features", "web_search"),
        ("sandbox_workspace_write",),
        ("sandbox_workspace_write", "other"),
        ("permissions", "other", "extends"),
        ("permissions", "holdfast"),
        ("projects", "/r"),
        ("projects", "/r", "other"),
        ("shell_environment_policy",),
        ("tui", "sandbox_mode"),
    ],
)
def test_a_key_of_the_user_is_not_ours(key: tuple[str, ...]) -> None:
    assert not is_owned(key)
    with pytest.raises(UsageError):
        block_of(key)


def test_the_order_does_not_depend_on_who_asks() -> None:
    mixed = settings([INHERIT, MEMORIES, TRUST, NETWORK, MODE])
    assert mixed == Settings((MODE, NETWORK, TRUST, MEMORIES, INHERIT))
    assert tuple(item for block in BLOCKS for item in mixed.of(block)) == mixed.items


def test_a_key_can_be_looked_up_replaced_and_left_out() -> None:
    both = settings([NETWORK, MODE])
    assert both.get("sandbox_mode") == "workspace-write"
    assert both.get("approval_policy") is None
    assert both.replace(("sandbox_mode",), "read-only").items[0].value == "read-only"
    assert both.without(("sandbox_mode",)) == settings([NETWORK])


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(UsageError):
        settings([MODE, MODE])


@pytest.mark.parametrize("value", ["\udc80", ("/ok", "/\udcff")])
def test_a_name_that_is_not_utf8_is_refused(value: Value) -> None:
    with pytest.raises(UsageError):
        settings([Setting(("sandbox_workspace_write", "writable_roots"), value)])
    with pytest.raises(UsageError):
        settings([Setting(("projects", "/\udc80", "trust_level"), "untrusted")])


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
    assert render_value(value) == text


def test_any_string_and_any_key_can_be_read_back() -> None:
    line = f"{render_key(('plain', HOSTILE, ''))} = {render_string(HOSTILE)}"
    assert "\n" not in line
    assert tomllib.loads(line) == {"plain": {HOSTILE: {"": HOSTILE}}}


def test_a_block_knows_its_own_marks() -> None:
    first, *body, last = render_block("trust", ["a = 1", "b = 2"], "\r\n").splitlines(keepends=True)
    begin = parse_begin(first)
    assert begin == Begin("trust", FORMAT, digest("".join(body)))
    assert parse_end(last) == "trust"
    assert parse_end(first) is None
    assert parse_begin(last) is None


def test_the_digest_does_not_mind_line_ends_but_minds_everything_else() -> None:
    assert digest("a = 1\r\n") == digest("a = 1\n")
    assert digest("a = 1\n") != digest("a = 2\n")


@pytest.mark.parametrize(
    ("source", "count"), [("a = 1\n", 1), ("a = 1", 1), ("a = '''\n\u2028\r\n'''\n", 3), ("a = [\n\n]", 3)]
)
def test_a_record_keeps_the_lines_and_says_how_many(source: str, count: int) -> None:
    first, rest = render_record(source, "why", "\n").split("\n", 1)
    assert parse_record(first) == count
    assert "".join(line.removeprefix(OUT) for line in rest.split("\n")) == source.replace("\n", "")


@pytest.mark.parametrize(
    "comment", ["# holdfast", "# >>> holdfast other v1 >>>", " # <<< holdfast trust v1 <<<"]
)
def test_another_comment_is_not_ours(comment: str) -> None:
    assert parse_begin(comment) is None
    assert parse_end(comment) is None
    assert parse_record(comment) is None


def test_a_mark_of_an_older_version_is_still_known() -> None:
    assert parse_begin("# >>> holdfast sandbox v0 >>>\n") == Begin("sandbox", 0, None)
    assert parse_end("# <<< holdfast sandbox v0 <<<\n") == "sandbox"


def in_force(tree: object, **origins: str) -> Effective:
    return Effective(dict(flatten(tree)), origins)


def as_decided(decided: Settings) -> dict[tuple[str, ...], object]:
    return {item.key: item.value for item in decided.items}


def test_a_tree_becomes_its_leaves_without_what_is_not_set() -> None:
    tree = {"a": {"b": [1, 2], "c": None}, "d": False}
    assert dict(flatten(tree)) == {("a", "b"): (1, 2), ("d",): False}


def test_what_is_as_decided_does_not_differ() -> None:
    for decided in (LEGACY, PROFILE):
        assert differences(decided, Effective(as_decided(decided), {})) == []


def test_a_value_of_another_layer_differs_and_says_whose_it_is() -> None:
    tree = {"sandbox_mode": "danger-full-access", "sandbox_workspace_write": {"writable_roots": ["/a", "/b"]}}
    [mode, roots] = differences(LEGACY, in_force(tree, sandbox_mode="project /r/.codex"))
    assert (mode.found, mode.origin) == ("danger-full-access", "project /r/.codex")
    assert (roots.decided, roots.found) == (("/a",), ("/a", "/b"))
    assert "/r/.codex" in str(mode)
    assert json.loads(json.dumps(roots.report()))["found"] == ["/a", "/b"]


def test_a_value_that_is_missing_differs() -> None:
    [mode, _roots] = differences(LEGACY, in_force({}))
    assert mode.found is None
    assert "not set" in str(mode)


def test_a_number_is_no_truth_value() -> None:
    decided = settings([Setting(("features", "memories"), False)])
    assert differences(decided, in_force({"features": {"memories": 0}}))


def test_the_other_vocabulary_differs_since_it_would_win() -> None:
    values = as_decided(LEGACY) | {("default_permissions",): ":danger-full-access"}
    [rival] = differences(LEGACY, Effective(values, {}))
    assert rival.key == ("default_permissions",)
    assert differences(PROFILE, Effective(as_decided(PROFILE) | {("sandbox_mode",): "read-only"}, {}))


def test_the_other_vocabulary_in_a_layer_below_is_not_heard() -> None:
    values = as_decided(PROFILE) | {("sandbox_mode",): "read-only"}
    origins = {"sandbox_mode": "system /etc/codex/config.toml"}
    assert differences(PROFILE, Effective(values, origins)) == []


def test_a_right_that_somebody_added_to_our_profile_differs() -> None:
    added = ("permissions", "holdfast", "filesystem", "/etc")
    [difference] = differences(PROFILE, Effective(as_decided(PROFILE) | {added: "write"}, {}))
    assert difference.key == added


def test_the_origin_of_a_list_is_told_by_its_table_or_its_parts() -> None:
    assert Effective({}, {"a.b": "user"}).origin(("a", "b", "c")) == "user"
    assert Effective({}, {"a.b.0": "project"}).origin(("a", "b")) == "project"
    assert Effective({}, {}).origin(("a",)) == ""


def test_a_mode_on_the_launch_line_is_above_everything() -> None:
    now = Effective(as_decided(LEGACY), {"sandbox_mode": "user"})
    assert differences(LEGACY, now.typed("workspace-write")) == []
    [mode] = differences(LEGACY, now.typed("danger-full-access"))
    assert (mode.found, mode.origin) == ("danger-full-access", "-s")
    [profile, rival] = differences(PROFILE, Effective(as_decided(PROFILE), {}).typed("workspace-write"))
    assert (profile.key, rival.key) == (("default_permissions",), ("sandbox_mode",))
