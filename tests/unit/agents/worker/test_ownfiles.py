"""A user's files are read with care, and placed where nothing a worker left is followed."""

import json
import os
from pathlib import Path

import pytest

from holdfast.agents.catalog.claude import CLAUDE
from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.catalog.gemini import GEMINI
from holdfast.agents.catalog.hostfiles import MAX_FILE
from holdfast.agents.catalog.opencode import OPENCODE
from holdfast.agents.worker.ownfiles import link_below, read_own_files, read_regular, remove_below
from tests.support.logins import KEY, set_up
from tests.support.rows import every_row

URL = "http://127.0.0.1:1"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_a_user_has_enters_by_its_way(tmp_path: Path) -> None:
    set_up("opencode", tmp_path, URL)
    own = read_own_files(OPENCODE, home=str(tmp_path), environment={})
    settings = json.loads(own.texts["config/opencode/opencode.json"])
    assert settings["provider"]["mine"]["options"] == {"baseURL": f"{URL}/v1"}
    assert "mcp" not in settings
    assert KEY in own.texts["data/opencode/auth.json"]
    assert own.links == {"config/opencode/AGENTS.md": f"{tmp_path}/.config/opencode/AGENTS.md"}
    assert KEY in own.secrets
    assert own.login is None, "a key is not renewed"
    assert any("opencode.json (its settings): copied, without mcp" in line for line in own.words)


def test_a_login_that_is_renewed_is_not_copied_as_a_file(tmp_path: Path) -> None:
    set_up("codex-chatgpt", tmp_path, URL)
    own = read_own_files(CODEX, home=str(tmp_path), environment={})
    assert own.login is not None
    assert own.login.path == f"{tmp_path}/.codex/auth.json"
    assert list(own.texts) == ["config.toml"]


def test_a_home_without_any_of_it_gives_nothing(tmp_path: Path) -> None:
    own = read_own_files(CLAUDE, home=str(tmp_path), environment={})
    assert (own.texts, own.links, own.login, own.words) == ({}, {}, None, [])


def test_a_link_to_another_credential_does_not_enter(tmp_path: Path) -> None:
    write(tmp_path / ".docker/config.json", '{"auths": {"registry": {"auth": "c2VjcmV0"}}}')
    write(tmp_path / ".ssh/keys/id", "secret")
    settings = tmp_path / ".gemini/settings.json"
    settings.parent.mkdir()
    settings.symlink_to(tmp_path / ".docker/config.json")
    (tmp_path / ".gemini/commands").symlink_to(tmp_path / ".ssh/keys")
    own = read_own_files(GEMINI, home=str(tmp_path), environment={})
    assert (own.texts, own.links) == ({}, {})
    assert len([line for line in own.words if "left out" in line]) == 2


def test_a_link_of_a_user_to_settings_elsewhere_is_followed(tmp_path: Path) -> None:
    kept = write(tmp_path / "dotfiles/settings.json", '{"model": {"name": "m"}}')
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/settings.json").symlink_to(kept)
    own = read_own_files(GEMINI, home=str(tmp_path), environment={})
    assert json.loads(own.texts[".gemini/settings.json"]) == {"model": {"name": "m"}}


@every_row("content", ["{", "[]", "x" * (MAX_FILE + 1), "\udcff"])
def test_what_cannot_be_used_is_left_out_and_said(
    tmp_path_factory: pytest.TempPathFactory, content: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    place = home / ".codex/config.toml"
    place.parent.mkdir()
    place.write_bytes(content.encode("utf-8", "surrogateescape"))
    own = read_own_files(CODEX, home=str(home), environment={})
    assert own.texts == {}
    assert "is left out" in own.words[0]


def test_ours_wins_over_the_users_where_both_have_settings(tmp_path: Path) -> None:
    write(tmp_path / ".gemini/settings.json", '{"ui": {"theme": "x"}, "mcpServers": {"mine": {}}}')
    own = read_own_files(GEMINI, home=str(tmp_path), environment={})
    own.add_texts({".gemini/settings.json": '{"mcpServers": {"holdfast": {}}}', "other": "text"})
    assert json.loads(own.texts[".gemini/settings.json"]) == {
        "ui": {"theme": "x"},
        "mcpServers": {"holdfast": {}},
    }
    assert own.texts["other"] == "text"


def test_nothing_but_a_file_is_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(write(tmp_path / "file", "data"))
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert read_regular(str(tmp_path / "link"), 10) == b"data"
    for name, follow in (("pipe", True), ("link", False), ("sparse", True), (".", True)):
        with pytest.raises((OSError, ValueError)):
            read_regular(str(tmp_path / name), 10, follow=follow)


def test_a_link_is_made_and_removed_without_following_others(tmp_path: Path) -> None:
    state, outside = tmp_path / "state", tmp_path / "outside"
    state.mkdir()
    write(outside / "file", "the user's")
    link_below(str(state), ("a", "file"), "/target")
    assert os.readlink(state / "a/file") == "/target"
    link_below(str(state), ("a", "file"), "/another")
    assert os.readlink(state / "a/file") == "/another"
    (state / "b").symlink_to(outside)
    with pytest.raises(OSError, match=r"."):
        link_below(str(state), ("b", "file"), "/target")
    remove_below(str(state), ("b", "file"))
    assert (outside / "file").read_text() == "the user's"
    remove_below(str(state), ("a", "file"))
    assert not os.path.lexists(state / "a/file")
