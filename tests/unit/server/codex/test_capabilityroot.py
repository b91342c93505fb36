"""What is found below one root, and what becomes a warning instead."""

import errno
import json
import os
from pathlib import Path

import pytest

from holdfast.server.codex import capabilityroot
from holdfast.server.codex.capabilityroot import MAX_FILE_BYTES, discover_root, refuse
from holdfast.wire.discovery import CapabilityFile, CapabilityRoot, PluginFiles, RootDiscovery, SkillFiles
from holdfast.wire.paths import PathUri


def put(path: Path, contents: str | bytes = "x") -> CapabilityFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = contents.encode() if isinstance(contents, str) else contents
    path.write_bytes(data)
    return CapabilityFile(path.as_uri(), data.decode("utf-8", "replace"))


def plugin(root: Path, manifest: object, folder: str = ".codex-plugin") -> CapabilityFile:
    return put(root / folder / "plugin.json", json.dumps(manifest))


def find(path: Path) -> RootDiscovery:
    return discover_root(CapabilityRoot("the id", PathUri.from_native(str(path))))


def skill_paths(found: RootDiscovery, root: Path) -> list[str]:
    return [skill.instructions.path.removeprefix(f"{root.as_uri()}/") for skill in found.skills]


def test_a_plugin_comes_with_its_files_and_skills(tmp_path: Path) -> None:
    manifest = plugin(tmp_path, {"name": "p"})
    mcp, apps = put(tmp_path / ".mcp.json"), put(tmp_path / ".app.json")
    second = SkillFiles(put(tmp_path / "skills/b/SKILL.md"), put(tmp_path / "skills/b/agents/openai.yaml"))
    first = SkillFiles(put(tmp_path / "skills/a/SKILL.md"), None)
    assert find(tmp_path) == RootDiscovery(
        id="the id",
        path=tmp_path.as_uri(),
        plugin=PluginFiles(manifest, mcp, apps),
        skills=[first, second],
        namespace_manifests=[manifest],
        warnings=[],
        error=None,
    )


def test_declared_files_replace_the_defaults(tmp_path: Path) -> None:
    manifest = plugin(tmp_path, {"mcpServers": "./conf/m.json", "apps": "./conf/./a.json"}, ".claude-plugin")
    put(tmp_path / ".mcp.json")
    declared = [put(tmp_path / "conf/m.json"), put(tmp_path / "conf/a.json")]
    assert find(tmp_path).plugin == PluginFiles(manifest, *declared)


def test_inline_servers_need_no_file(tmp_path: Path) -> None:
    manifest = plugin(tmp_path, {"mcpServers": {"x": {}}, "apps": {"x": {}}})
    put(tmp_path / ".mcp.json")
    apps = put(tmp_path / ".app.json")
    assert find(tmp_path).plugin == PluginFiles(manifest, None, apps)


@pytest.mark.parametrize(
    "declared", ["", "x.json", "/etc/passwd", "./", "./../x.json", "./a/../b", ".//x.json", "./a\0b"]
)
def test_a_declared_path_that_leaves_the_root_is_ignored(tmp_path: Path, declared: str) -> None:
    manifest = plugin(tmp_path, {"mcpServers": declared})
    put(tmp_path.parent / "x.json")
    default = put(tmp_path / ".mcp.json")
    found = find(tmp_path)
    assert found.plugin == PluginFiles(manifest, default, None)
    assert len(found.warnings) == 1


@pytest.mark.parametrize("text", ["{broken", "[]", '{"apps":' + "[" * 5000, '"\\ud800"'])
def test_a_manifest_that_is_no_object_is_still_handed_over(tmp_path: Path, text: str) -> None:
    manifest = put(tmp_path / ".codex-plugin/plugin.json", text)
    default = put(tmp_path / ".mcp.json")
    assert find(tmp_path).plugin == PluginFiles(manifest, default, None)


def test_the_first_readable_manifest_counts(tmp_path: Path) -> None:
    (tmp_path / ".codex-plugin/plugin.json").mkdir(parents=True)
    put(tmp_path / ".claude-plugin/plugin.json", b"\xff")
    manifest = plugin(tmp_path, {}, ".cursor-plugin")
    found = find(tmp_path)
    assert found.plugin == PluginFiles(manifest, None, None)
    assert len(found.warnings) == 1


def test_inner_plugins_are_listed_by_their_path_and_best_manifest(tmp_path: Path) -> None:
    own = plugin(tmp_path, {"name": "own"})
    last = plugin(tmp_path / "z", {"name": "z"})
    plugin(tmp_path / "a", {"name": "second choice"}, ".claude-plugin")
    first = plugin(tmp_path / "a", {"name": "a"})
    put(tmp_path / "b/.codex-plugin/plugin.json", b"\xff")
    put(tmp_path / "c/plugin.json")
    assert find(tmp_path).namespace_manifests == [own, first, last]


def test_the_nearest_manifest_above_names_a_root_without_its_own(tmp_path: Path) -> None:
    above = plugin(tmp_path, {"name": "above"})
    put(tmp_path / "a/b/SKILL.md")
    found = find(tmp_path / "a/b")
    assert found.plugin is None
    assert found.namespace_manifests == [above]


def test_the_folder_of_a_manifest_is_named_by_it_once(tmp_path: Path) -> None:
    manifest = plugin(tmp_path, {"name": "p"})
    assert find(tmp_path / ".codex-plugin").namespace_manifests == [manifest]


def test_links_to_directories_are_followed_once_and_links_to_files_overlooked(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    put(outside / "SKILL.md")
    (root / "file").mkdir(parents=True)
    (root / "file/SKILL.md").symlink_to(outside / "SKILL.md")
    (root / "a-link").symlink_to(outside)
    (root / "b-link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "broken").symlink_to(tmp_path / "nowhere")
    found = find(root)
    assert skill_paths(found, root) == ["a-link/SKILL.md"]
    assert found.warnings == []


def test_skills_deeper_than_the_bound_are_not_found(tmp_path: Path) -> None:
    for depth in range(1, 9):
        put(tmp_path.joinpath(*map(str, range(depth))) / "SKILL.md")
    assert max(skill_paths(find(tmp_path), tmp_path), key=len) == "0/1/2/3/4/5/SKILL.md"


def test_names_that_are_not_utf8_are_found(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder), "SKILL.md").write_text("x", encoding="utf-8")
    assert skill_paths(find(tmp_path), tmp_path) == ["%FF/SKILL.md"]


@pytest.mark.parametrize("bound", ["MAX_DIRECTORIES", "MAX_ENTRIES"])
def test_a_scan_that_hits_a_bound_says_so(
    tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilityroot, bound, 3)
    for name in "abcd":
        put(tmp_path / name / "SKILL.md")
    found = find(tmp_path)
    assert len(found.skills) < 4
    assert found.warnings == [f"capability scan reached its traversal limit (root: {tmp_path.as_uri()})"]


def test_an_oversized_or_unusable_file_is_skipped_with_a_warning(tmp_path: Path) -> None:
    put(tmp_path / "a/SKILL.md", "x" * (MAX_FILE_BYTES + 1))
    put(tmp_path / "b/SKILL.md", b"\xff")
    put(tmp_path / "c/SKILL.md")
    put(tmp_path / "c/agents")
    put(tmp_path / "d/SKILL.md")
    os.mkfifo(tmp_path / "fifo")
    found = find(tmp_path)
    assert skill_paths(found, tmp_path) == ["c/SKILL.md", "d/SKILL.md"]
    assert len(found.warnings) == 3


def test_a_root_beyond_its_byte_budget_loses_its_last_files(tmp_path: Path) -> None:
    for number in range(17):
        put(tmp_path / str(number) / "SKILL.md", "x" * MAX_FILE_BYTES)
    found = find(tmp_path)
    assert len(found.skills) == 16
    assert found.warnings == ["capability root bundle exceeds the 16777216-byte limit"]


def test_a_directory_that_cannot_be_listed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "good/SKILL.md")
    (tmp_path / "bad").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> "os._ScandirIterator[str]":
        if path.endswith("/bad"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find(tmp_path)
    assert skill_paths(found, tmp_path) == ["good/SKILL.md"]
    assert found.warnings == [
        f"failed to scan capability path {tmp_path.as_uri()}/bad: Permission denied (os error 13)"
    ]


def test_a_link_to_itself_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    assert len(find(tmp_path).warnings) == 1


def test_a_root_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    assert find(tmp_path).error


def test_a_root_must_be_a_directory_of_this_host(tmp_path: Path) -> None:
    put(tmp_path / "file")
    uri = tmp_path.as_uri()
    assert find(tmp_path / "file").error == f"capability root {uri}/file is not a directory"
    assert find(tmp_path / "none").error == (
        f"failed to inspect capability root {uri}/none: No such file or directory (os error 2)"
    )
    foreign = CapabilityRoot("", PathUri.parse("file:///C:/x"))
    assert (discover_root(foreign).error or "").startswith("failed to inspect capability root file:///C:/x: ")


def test_a_refused_root_is_empty_but_for_the_reason() -> None:
    root = CapabilityRoot("r", PathUri.parse("file:///srv/"))
    assert refuse(root, "no") == RootDiscovery("r", "file:///srv/", None, [], [], [], "no")
