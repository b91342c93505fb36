"""Which installed plugins and skills are reported, under which names."""

import errno
import json
import os
from pathlib import Path

import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.codex import discovery
from holdfast.server.codex.discovery import (
    LOCATION_WARNING,
    MAX_FILE_BYTES,
    MAX_REMOTE_BYTES,
    METADATA_WARNING,
    InstalledIn,
    check_count,
    discover,
    discover_root,
    refuse,
)
from holdfast.wire.discovery import (
    CapabilityFile,
    CapabilityRoot,
    DiscoverResult,
    DiscoverRootsParams,
    DiscoveryOrigin,
    Plugin,
    PluginFiles,
    PluginSkill,
    RootDiscovery,
    Skill,
    SkillDependencies,
    SkillFiles,
    SkillPolicy,
    ToolDependency,
)
from holdfast.wire.paths import PathUri

ROOT = PathUri.parse("file:///nonexistent")
META = "policy: {allow_implicit_invocation: false}\ndependencies: {tools: [{type: t, value: v}]}\n"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / ".codex/plugins/cache"


def look(home: Path) -> DiscoverResult:
    return discover(InstalledIn(str(home / ".codex"), str(home), str(home / "etc")))


def put(path: Path, text: str) -> CapabilityFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return CapabilityFile(path.as_uri(), text)


def skill(folder: Path, name: str = "s") -> str:
    return put(folder / "SKILL.md", f"---\nname: {name}\ndescription: d\n---\n").path


def plugin(folder: Path, manifest: object) -> CapabilityFile:
    return put(folder / ".codex-plugin/plugin.json", json.dumps(manifest))


def ids(result: DiscoverResult) -> list[str]:
    return [f"{found.id} {found.version}" for found in result.plugins]


def test_too_many_roots_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^capability root discovery accepts at most 128 roots$"):
        check_count(DiscoverRootsParams([CapabilityRoot("", ROOT)] * 129))


def test_a_home_without_anything_gives_nothing(tmp_path: Path) -> None:
    assert look(tmp_path) == DiscoverResult([], [], [])


def test_skills_come_by_location_and_path(tmp_path: Path) -> None:
    system = skill(tmp_path / "etc/skills/a", "a")
    agents = skill(tmp_path / ".agents/skills/b", "b")
    codex = skill(tmp_path / ".codex/skills/z", "z")
    hidden = skill(tmp_path / ".codex/skills/.system/c", "c")
    result = look(tmp_path)
    assert [(found.discovery_root.id, found.path) for found in result.skills] == [
        ("codex-home-skills", hidden),
        ("codex-home-skills", codex),
        ("user-agent-skills", agents),
        ("system-skills", system),
    ]
    assert result.warnings == []


def test_a_skill_is_described_from_both_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / ".codex/skills/a"
    text = "---\nname: n\ndescription: d\nmetadata: {short-description: s}\n---\n"
    path = put(folder / "SKILL.md", text).path
    put(folder / "agents/openai.yaml", META)
    assert look(tmp_path).skills == [
        Skill(
            name="n",
            description="d",
            short_description="s",
            path=path,
            discovery_root=DiscoveryOrigin("codex-home-skills", (tmp_path / ".codex/skills").as_uri()),
            dependencies=SkillDependencies([ToolDependency("t", "v", None, None, None, None, None)]),
            policy=SkillPolicy(False, []),
        )
    ]


def test_unusable_skills_cost_one_warning_per_location(tmp_path: Path) -> None:
    skill(tmp_path / ".codex/skills/good")
    for name in "ab":
        put(tmp_path / f".codex/skills/{name}/SKILL.md", "no front matter")
    put(tmp_path / ".agents/skills/a/SKILL.md", "no front matter")
    result = look(tmp_path)
    assert len(result.skills) == 1
    assert result.warnings == [METADATA_WARNING] * 2


def test_a_skill_is_named_by_the_nearest_usable_manifest(tmp_path: Path) -> None:
    skills = tmp_path / ".codex/skills"
    plugin(skills / "outer", {"name": "outer"})
    plugin(skills / "outer/inner", {})
    put(skills / "outer/broken/.codex-plugin/plugin.json", "{")
    for place in ("plain", "outer/x", "outer/inner/x", "outer/broken/x"):
        skill(skills / place)
    assert [found.name for found in look(tmp_path).skills] == ["outer:s", "inner:s", "outer:s", "s"]


def test_a_skill_without_a_name_in_a_folder_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path / ".codex/skills") + b"/\xff"))
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: d\n---\n", encoding="utf-8")
    assert [found.name for found in look(tmp_path).skills] == ["\ufffd"]


def test_a_cached_plugin_comes_with_files_and_skills(tmp_path: Path, cache: Path) -> None:
    root = cache / "market/plug/1.0.0"
    manifest = plugin(root, {"name": "shown", "interface": {"displayName": "Nice"}})
    mcp = put(root / ".mcp.json", "{}")
    path = skill(root / "skills/a", "a")
    put(root.parent / ".codex-remote-plugin-install.json", '{"schema_version":1,"remote_plugin_id":" r "}')
    assert look(tmp_path) == DiscoverResult(
        [
            Plugin(
                id="plug@market",
                display_name="Nice",
                remote_plugin_id="r",
                version="1.0.0",
                root=root.as_uri(),
                files=PluginFiles(manifest, mcp, None),
                skills=[PluginSkill("shown:a", "d", None, path, None, None)],
            )
        ],
        [],
        [],
    )


def test_plugins_come_by_id(tmp_path: Path, cache: Path) -> None:
    for place in ("b/x", "a/y", "a/x"):
        plugin(cache / place / "1", {})
    assert ids(look(tmp_path)) == ["x@a 1", "x@b 1", "y@a 1"]


@pytest.mark.parametrize(
    ("manifest", "shown"),
    [
        ({"name": "n"}, "n"),
        ({"name": "n", "interface": None}, "n"),
        ({"name": "n", "interface": {"displayName": " "}}, "n"),
        ({"name": " "}, "1"),
        ({}, "1"),
    ],
)
def test_a_plugin_without_a_display_name_has_the_next_best(
    tmp_path: Path, cache: Path, manifest: object, shown: str
) -> None:
    plugin(cache / "m/p/1", manifest)
    assert [found.display_name for found in look(tmp_path).plugins] == [shown]


@pytest.mark.parametrize("manifest", [[], {"name": 3}, {"interface": 3}, {"interface": {"displayName": 5}}])
def test_a_plugin_with_an_unusable_manifest_is_left_out(
    tmp_path: Path, cache: Path, manifest: object
) -> None:
    plugin(cache / "m/bad/1", manifest)
    plugin(cache / "m/good/1", {})
    (cache / "m/none/1").mkdir(parents=True)
    result = look(tmp_path)
    assert ids(result) == ["good@m 1"]
    assert result.warnings == [METADATA_WARNING] * 2


@pytest.mark.parametrize(
    ("versions", "in_force"),
    [
        (["1.9.0", "1.10.0"], "1.10.0"),
        (["9.9.9", "latest", "local", "main"], "local"),
        (["1.0.0", "1.0.0-rc.1"], "1.0.0"),
        (["1.0.0-rc.9", "1.0.0-rc.10", "1.0.0-1"], "1.0.0-rc.10"),
        (["1.0.0-rc", "1.0.0-rc.1"], "1.0.0-rc.1"),
        (["1.0.0+a", "1.0.0+b"], "1.0.0+b"),
        (["1.10", "1.2"], "1.2"),
        (["0.0.1", "abc"], "abc"),
        (["1.0.0", "1.0.0 copy"], "1.0.0"),
    ],
)
def test_the_latest_version_is_in_force(
    tmp_path: Path, cache: Path, versions: list[str], in_force: str
) -> None:
    for version in versions:
        plugin(cache / "m/p" / version, {})
    assert ids(look(tmp_path)) == [f"p@m {in_force}"]


def test_only_well_named_directories_of_the_cache_count(tmp_path: Path, cache: Path) -> None:
    for place in ("M_k-1/p.q/1", "m.k/p/1", "m/.p/1", "m/p./1", "m/p+q/1", "m/a@b/1", "m/v/1 2", ".m/p/1"):
        plugin(cache / place, {})
    put(cache / "file", "")
    put(cache / "m/file", "")
    assert ids(look(tmp_path)) == ["p.q@M_k-1 1"]


def test_a_linked_marketplace_counts_once_and_a_linked_version_not_at_all(
    tmp_path: Path, cache: Path
) -> None:
    plugin(tmp_path / "elsewhere/p/1", {})
    cache.mkdir(parents=True)
    (cache / "a").symlink_to(tmp_path / "elsewhere")
    (cache / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/p/2").symlink_to(tmp_path / "elsewhere/p/1")
    assert ids(look(tmp_path)) == ["p@a 1"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema_version":2,"remote_plugin_id":"r"}',
        '{"schema_version":1,"remote_plugin_id":" "}',
        '{"schema_version":1,"remote_plugin_id":"' + "r" * 1025 + '"}',
        '{"schema_version":1,"remote_plugin_id":"r"}' + " " * MAX_REMOTE_BYTES,
    ],
)
def test_an_unusable_remote_id_is_left_out_with_one_warning(tmp_path: Path, cache: Path, text: str) -> None:
    for name in "pq":
        plugin(cache / f"m/{name}/1", {})
        put(cache / f"m/{name}/.codex-remote-plugin-install.json", text)
    result = look(tmp_path)
    assert [found.remote_plugin_id for found in result.plugins] == [None, None]
    assert result.warnings == [LOCATION_WARNING]


def test_a_cache_too_large_to_look_through_gives_what_was_found(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "MAX_DIRECTORIES", 7)
    for name in "abc":
        plugin(cache / f"m/{name}/1", {})
        plugin(cache / f"m/{name}/2", {})
    result = look(tmp_path)
    assert ids(result) == ["a@m 2"]
    assert result.warnings == [LOCATION_WARNING]


def put_file(path: Path, contents: str | bytes = "x") -> CapabilityFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = contents.encode() if isinstance(contents, str) else contents
    path.write_bytes(data)
    return CapabilityFile(path.as_uri(), data.decode("utf-8", "replace"))


def put_manifest(root: Path, manifest: object, folder: str = ".codex-plugin") -> CapabilityFile:
    return put_file(root / folder / "plugin.json", json.dumps(manifest))


def find(path: Path) -> RootDiscovery:
    return discover_root(CapabilityRoot("the id", PathUri.from_native(str(path))))


def skill_paths(found: RootDiscovery, root: Path) -> list[str]:
    return [skill.instructions.path.removeprefix(f"{root.as_uri()}/") for skill in found.skills]


def test_a_plugin_comes_with_its_files_and_skills(tmp_path: Path) -> None:
    manifest = put_manifest(tmp_path, {"name": "p"})
    mcp, apps = put_file(tmp_path / ".mcp.json"), put_file(tmp_path / ".app.json")
    second = SkillFiles(
        put_file(tmp_path / "skills/b/SKILL.md"), put_file(tmp_path / "skills/b/agents/openai.yaml")
    )
    first = SkillFiles(put_file(tmp_path / "skills/a/SKILL.md"), None)
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
    manifest = put_manifest(
        tmp_path, {"mcpServers": "./conf/m.json", "apps": "./conf/./a.json"}, ".claude-plugin"
    )
    put_file(tmp_path / ".mcp.json")
    declared = [put_file(tmp_path / "conf/m.json"), put_file(tmp_path / "conf/a.json")]
    assert find(tmp_path).plugin == PluginFiles(manifest, *declared)


def test_inline_servers_need_no_file(tmp_path: Path) -> None:
    manifest = put_manifest(tmp_path, {"mcpServers": {"x": {}}, "apps": {"x": {}}})
    put_file(tmp_path / ".mcp.json")
    apps = put_file(tmp_path / ".app.json")
    assert find(tmp_path).plugin == PluginFiles(manifest, None, apps)


@pytest.mark.parametrize(
    "declared", ["", "x.json", "/etc/passwd", "./", "./../x.json", "./a/../b", ".//x.json", "./a\0b"]
)
def test_a_declared_path_that_leaves_the_root_is_ignored(tmp_path: Path, declared: str) -> None:
    manifest = put_manifest(tmp_path, {"mcpServers": declared})
    put_file(tmp_path.parent / "x.json")
    default = put_file(tmp_path / ".mcp.json")
    found = find(tmp_path)
    assert found.plugin == PluginFiles(manifest, default, None)
    assert len(found.warnings) == 1


@pytest.mark.parametrize("text", ["{broken", "[]", '{"apps":' + "[" * 5000, '"\\ud800"'])
def test_a_manifest_that_is_no_object_is_still_handed_over(tmp_path: Path, text: str) -> None:
    manifest = put_file(tmp_path / ".codex-plugin/plugin.json", text)
    default = put_file(tmp_path / ".mcp.json")
    assert find(tmp_path).plugin == PluginFiles(manifest, default, None)


def test_the_first_readable_manifest_counts(tmp_path: Path) -> None:
    (tmp_path / ".codex-plugin/plugin.json").mkdir(parents=True)
    put_file(tmp_path / ".claude-plugin/plugin.json", b"\xff")
    manifest = put_manifest(tmp_path, {}, ".cursor-plugin")
    found = find(tmp_path)
    assert found.plugin == PluginFiles(manifest, None, None)
    assert len(found.warnings) == 1


def test_inner_plugins_are_listed_by_their_path_and_best_manifest(tmp_path: Path) -> None:
    own = put_manifest(tmp_path, {"name": "own"})
    last = put_manifest(tmp_path / "z", {"name": "z"})
    put_manifest(tmp_path / "a", {"name": "second choice"}, ".claude-plugin")
    first = put_manifest(tmp_path / "a", {"name": "a"})
    put_file(tmp_path / "b/.codex-plugin/plugin.json", b"\xff")
    put_file(tmp_path / "c/plugin.json")
    assert find(tmp_path).namespace_manifests == [own, first, last]


def test_the_nearest_manifest_above_names_a_root_without_its_own(tmp_path: Path) -> None:
    above = put_manifest(tmp_path, {"name": "above"})
    put_file(tmp_path / "a/b/SKILL.md")
    found = find(tmp_path / "a/b")
    assert found.plugin is None
    assert found.namespace_manifests == [above]


def test_the_folder_of_a_manifest_is_named_by_it_once(tmp_path: Path) -> None:
    manifest = put_manifest(tmp_path, {"name": "p"})
    assert find(tmp_path / ".codex-plugin").namespace_manifests == [manifest]


def test_links_to_directories_are_followed_once_and_links_to_files_overlooked(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    put_file(outside / "SKILL.md")
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
        put_file(tmp_path.joinpath(*map(str, range(depth))) / "SKILL.md")
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
    monkeypatch.setattr(discovery, bound, 3)
    for name in "abcd":
        put_file(tmp_path / name / "SKILL.md")
    found = find(tmp_path)
    assert len(found.skills) < 4
    assert found.warnings == [f"capability scan reached its traversal limit (root: {tmp_path.as_uri()})"]


def test_an_oversized_or_unusable_file_is_skipped_with_a_warning(tmp_path: Path) -> None:
    put_file(tmp_path / "a/SKILL.md", "x" * (MAX_FILE_BYTES + 1))
    put_file(tmp_path / "b/SKILL.md", b"\xff")
    put_file(tmp_path / "c/SKILL.md")
    put_file(tmp_path / "c/agents")
    put_file(tmp_path / "d/SKILL.md")
    os.mkfifo(tmp_path / "fifo")
    found = find(tmp_path)
    assert skill_paths(found, tmp_path) == ["c/SKILL.md", "d/SKILL.md"]
    assert len(found.warnings) == 3


def test_a_root_beyond_its_byte_budget_loses_its_last_files(tmp_path: Path) -> None:
    for number in range(17):
        put_file(tmp_path / str(number) / "SKILL.md", "x" * MAX_FILE_BYTES)
    found = find(tmp_path)
    assert len(found.skills) == 16
    assert found.warnings == ["capability root bundle exceeds the 16777216-byte limit"]


def test_a_directory_that_cannot_be_listed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_file(tmp_path / "good/SKILL.md")
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
    put_file(tmp_path / "file")
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
