"""Owned keys: which are ours, in which block, in which order."""

import pytest

from holdfast.agentconfig.settings import BLOCKS, Setting, Settings, Value, block_of, is_owned, settings
from holdfast.errors import UsageError
from tests.support.rows import every_row

MODE = Setting(("sandbox_mode",), "workspace-write")
NETWORK = Setting(("sandbox_workspace_write", "network_access"), True)
TRUST = Setting(("projects", "/a.b", "trust_level"), "untrusted")
MEMORIES = Setting(("features", "memories"), False)
INHERIT = Setting(("shell_environment_policy", "inherit"), "core")


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
