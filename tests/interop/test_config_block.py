"""The real Codex judges the managed block: it still loads the file, and our values are in force."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from holdfast.agentconfig.block import Applied, apply
from holdfast.agentconfig.removal import ConflictKind, strip
from holdfast.agentconfig.settings import Key, Setting, Settings, Value, settings
from tests.support.codex import requires_codex
from tests.support.configreader import ConfigReader, Rejected, config_reader
from tests.support.tomlwriter import ROOTS, compose

CHUNKS: Final = 6
DOCUMENTS_IN_CHUNK: Final = 90  # 540 in all
DISPLACED: Final = {("sandbox_mode",), ("default_permissions",), ("profile",)}

FULL: Final = [
    Setting(("approval_policy",), "never"),
    Setting(("sandbox_workspace_write", "network_access"), True),
    Setting(("sandbox_workspace_write", "writable_roots"), ("/srv/x", "/srv/y z")),
    Setting(("sandbox_workspace_write", "exclude_slash_tmp"), True),
    Setting(("sandbox_workspace_write", "exclude_tmpdir_env_var"), False),
    Setting(("projects", ROOTS[0], "trust_level"), "untrusted"),
    Setting(("projects", ROOTS[1], "trust_level"), "untrusted"),
    Setting(("projects", ROOTS[2], "trust_level"), "untrusted"),
    Setting(("projects", "c:/work/repo", "trust_level"), "untrusted"),
    Setting(("features", "memories"), False),
    Setting(("features", "multi_agent"), False),
    Setting(("features", "unbounded_connection_retries"), False),
    Setting(("features", "network_proxy"), True),
    Setting(("check_for_update_on_startup",), False),
    Setting(("shell_environment_policy", "inherit"), "core"),
    Setting(("shell_environment_policy", "ignore_default_excludes"), False),
    Setting(("shell_environment_policy", "set", "A"), "1\n2"),
]
LEGACY: Final = settings([*FULL, Setting(("sandbox_mode",), "workspace-write")])
PROFILES: Final = settings(
    [
        *FULL,
        Setting(("default_permissions",), "holdfast"),
        Setting(("permissions", "holdfast", "extends"), ":workspace"),
        Setting(("permissions", "holdfast", "network", "enabled"), True),
        Setting(("permissions", "holdfast", "network", "domains", "a.example"), "allow"),
    ]
)
SMALL: Final = settings([Setting(("sandbox_mode",), "read-only"), Setting(("features", "memories"), False)])
WISHES: Final = (LEGACY, PROFILES, SMALL)


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[ConfigReader]:
    async with config_reader(requires_codex(), tmp_path / "home") as made:
        yield made


def leaves(tree: Any, above: Key = ()) -> dict[Key, Any]:
    if isinstance(tree, dict) and tree:
        return {
            key: value for name, below in tree.items() for key, value in leaves(below, (*above, name)).items()
        }
    return {above: tree}


def found(tree: Any, key: Key) -> Any:
    for name in key:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def unowned(tree: Any, wish: Settings) -> dict[Key, Any]:
    """What is not ours to change; a table that is empty without our keys is nothing."""
    away = {item.key for item in wish.items} | DISPLACED
    return {
        key: value
        for key, value in leaves(tree).items()
        if value != {} and not any(key[:length] in away for length in range(1, len(key) + 1))
    }


def as_read(value: Value, home: Path) -> object:
    """Codex answers with paths below the home directory written out."""
    return [root.replace("~", str(home), 1) for root in value] if isinstance(value, tuple) else value


def check_values(config: Any, applied: Applied, reader: ConfigReader) -> None:
    home = reader.file.parent.parent
    for item in applied.settings.items:
        assert found(config, item.key) == as_read(item.value, home), item.key


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_generated_documents_are_still_accepted_and_our_values_in_force(
    chunk: int, reader: ConfigReader
) -> None:
    for number in range(chunk * DOCUMENTS_IN_CHUNK, (chunk + 1) * DOCUMENTS_IN_CHUNK):
        text = compose(Random(number))  # noqa: S311  # the same documents every time
        wish = WISHES[number % len(WISHES)]
        before = await reader.layer(text)
        applied = apply(text, wish, config_dir=str(reader.file.parent))
        try:
            after = await reader.layer(applied.text)
        except Rejected as exc:
            raise AssertionError(f"document {number}: {exc}\n{applied.text}") from exc
        check_values(after, applied, reader)
        assert unowned(after, applied.settings) == unowned(before, applied.settings), number
        assert apply(applied.text, wish, config_dir=str(reader.file.parent)).text == applied.text
        assert strip(applied.text).text == text


@pytest.mark.parametrize("wish", [LEGACY, SMALL], ids=["all", "small"])
async def test_what_is_in_force_is_what_was_decided(wish: Settings, reader: ConfigReader) -> None:
    text = 'model = "m"\n[tui]\n[ "sandbox_workspace_write" ] # c\n[features]\ngoals = true\n'
    config = await reader.read(apply(text, wish, config_dir="/c").text)
    in_force = {"sandbox_mode", "approval_policy", "sandbox_workspace_write"}
    decided = [item for item in wish.items if item.key[0] in in_force]
    assert decided
    assert [found(config, item.key) for item in decided] == [as_read(item.value, Path()) for item in decided]


async def test_a_key_that_was_swallowed_by_a_table_is_in_force_after_an_older_shape_is_migrated(
    reader: ConfigReader,
) -> None:
    patch = 'sandbox_mode = "workspace-write"\n\n[sandbox_workspace_write]\nnetwork_access = true\n'
    broken = patch + patch + 'model = "m"\n[tui]\nanimations = true\n'
    with pytest.raises(Rejected):
        await reader.layer(broken)
    applied = apply(broken, SMALL, config_dir="/c")
    after = await reader.layer(applied.text)
    assert after["model"] == "m"
    check_values(after, applied, reader)


async def test_what_codex_itself_writes_into_a_managed_file_survives_the_next_apply(
    reader: ConfigReader,
) -> None:
    applied = apply('model = "m"\n', LEGACY, config_dir="/c")
    await reader.layer(applied.text)
    edits: list[dict[str, Any]] = [
        {"keyPath": "features.goals", "value": True, "mergeStrategy": "replace"},
        {"keyPath": "model", "value": "other", "mergeStrategy": "replace"},
        {"keyPath": "sandbox_mode", "value": "danger-full-access", "mergeStrategy": "replace"},
    ]
    for edit in edits:
        await reader.call("config/value/write", edit)
    again = apply(reader.file.read_text("utf-8"), LEGACY, config_dir="/c")
    after = await reader.layer(again.text)
    assert ConflictKind.EDITED in {conflict.kind for conflict in again.conflicts}
    assert after["features"]["goals"] is True
    assert after["model"] == "other"
    check_values(after, again, reader)
    assert again.settings.get("sandbox_mode") == "workspace-write"
