"""What is in force beside what was decided."""

import json

from holdfast.agentconfig.effective import Effective, differences, flatten
from holdfast.agentconfig.settings import Setting, Settings, settings

ROOTS = ("sandbox_workspace_write", "writable_roots")
LEGACY = settings([Setting(("sandbox_mode",), "workspace-write"), Setting(ROOTS, ("/a",))])
PROFILE = settings(
    [
        Setting(("default_permissions",), "holdfast"),
        Setting(("permissions", "holdfast", "network", "enabled"), False),
    ]
)


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
