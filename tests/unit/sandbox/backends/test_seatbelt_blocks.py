"""The fixed parts of a Seatbelt profile: well-formed, and granting nothing that a policy decides about."""

import pytest

from holdfast.sandbox.backends.seatbelt_blocks import (
    BASE,
    NETWORK_SERVICES,
    PLATFORM,
    PLATFORM_ROOTS,
    PREFERENCES,
    named,
    rule,
)
from holdfast.sandbox.policy.paths import absolute
from tests.support.sexpr import read

BLOCKS = {"base": BASE, "preferences": PREFERENCES, "platform": PLATFORM, "network": NETWORK_SERVICES}


def test_a_rule_without_filters_is_about_everything() -> None:
    assert rule("allow x") == "(allow x)"
    assert read(rule("allow x", named("literal", ("/a", "/b")))) == (
        ("allow", "x", ("literal", '"/a"'), ("literal", '"/b"')),
    )


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_made_of_whole_rules(name: str) -> None:
    rules = read(BLOCKS[name] + "\n")
    assert rules
    assert {each[0] for each in rules} <= {"version", "deny", "allow"}


@pytest.mark.parametrize("name", BLOCKS)
def test_of_files_only_devices_and_the_root_directory_are_granted(name: str) -> None:
    granted = [
        each for each in read(BLOCKS[name] + "\n") if any(str(word).startswith("file-") for word in each)
    ]
    for each in granted:
        filters = [part for part in each if not isinstance(part, str)]
        assert filters
        assert all(
            part == ("literal", '"/"') or '"/dev/' in str(part) or '#""' in str(part) for part in filters
        )


@pytest.mark.parametrize("name", ["base", "preferences", "platform"])
def test_the_network_is_never_part_of_what_everybody_gets(name: str) -> None:
    assert "network-" not in BLOCKS[name]


def test_platform_directories_are_real_paths() -> None:
    assert [path for path in PLATFORM_ROOTS if absolute(path, "") != path] == []
    assert [path for path in PLATFORM_ROOTS if path.startswith(("/etc", "/var", "/tmp"))] == []
