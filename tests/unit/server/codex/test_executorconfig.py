"""Which layers of configuration are shown, in which order, and which never."""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, OperationFailed, UsageError
from holdfast.server.codex import executorconfig
from holdfast.server.codex.executorconfig import (
    Table,
    find_codex_home,
    implied_requirements,
    read_config,
    read_regular,
    select,
)
from holdfast.server.codex.executorconfig import parse_wanted as tree_of
from holdfast.wire.environment import ConfigLayer, EnvironmentConfig, EnvironmentConfigReadParams, LayerStack
from holdfast.wire.paths import PathUri
from tests.support.rows import every_row

TRUSTED = 'trust_level = "trusted"\n'
UNTRUSTED = 'trust_level = "untrusted"\n'


class Host:
    """A home and a system directory to fill."""

    def __init__(self, base: Path) -> None:
        self.home, self.system = base / "home", base / "etc"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)

    def user(self, text: str) -> None:
        put(self.home / ".codex/config.toml", text)

    def trust(self, levels: dict[Path, str], text: str = "") -> None:
        self.user(text + "".join(f'[projects."{path}"]\n{level}' for path, level in levels.items()))

    def read(
        self,
        *keys: str,
        cwd: Path | None = None,
        requirements: Iterable[str] = (),
        environ: dict[str, str] | None = None,
    ) -> EnvironmentConfig:
        params = EnvironmentConfigReadParams(
            PathUri.from_native(str(cwd or self.project)),
            [key.split(".") for key in keys],
            [key.split(".") for key in requirements],
        )
        home, system = str(self.home), str(self.system)
        return read_config(params, environ=environ or {}, home=home, hostname="box", system_dir=system)

    def shown(self, *keys: str, cwd: Path | None = None) -> list[str]:
        """What each layer says to `model` (or the given keys), weakest first."""
        layers = self.read(*(keys or ("model",)), cwd=cwd).config.layers
        return [" ".join(str(value) for value in tomllib.loads(layer.toml).values()) for layer in layers]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def put(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def git(folder: Path) -> Path:
    put(folder / ".git/HEAD")
    return folder


def test_layers_come_weakest_first_with_the_keys_asked_for(host: Host) -> None:
    git(host.project)
    put(host.system / "config.toml", 'model = "1"\nother = 1\n')
    host.trust({host.project: TRUSTED}, 'other = 1\nmodel = "2"\n')
    put(host.project / ".codex/config.toml", 'model = "3"\n')
    put(host.project / "sub/.codex/config.toml", 'model = "4"\n')
    put(host.system / "managed_config.toml", 'model = "5"\nsandbox_mode = "workspace-write"\n')
    put(host.system / "requirements.toml", "allowed_sandbox_modes = ['read-only']\n")
    home, system, project = host.home.as_uri(), host.system.as_uri(), host.project.as_uri()
    found = host.read("model", cwd=host.project / "sub/new", requirements=["allowed_sandbox_modes"])
    assert found == EnvironmentConfig(
        user_home_dir=home,
        codex_home_dir=f"{home}/.codex",
        hostname="box",
        config=LayerStack(
            [
                ConfigLayer(f"system ({host.system}/config.toml)", system, 'model = "1"\n'),
                ConfigLayer(f"user ({host.home}/.codex/config.toml)", f"{home}/.codex", 'model = "2"\n'),
                ConfigLayer(
                    f"project ({host.project}/.codex/config.toml)", f"{project}/.codex", 'model = "3"\n'
                ),
                ConfigLayer(
                    f"project ({host.project}/sub/.codex/config.toml)",
                    f"{project}/sub/.codex",
                    'model = "4"\n',
                ),
                ConfigLayer(
                    f"legacy managed_config.toml ({host.system}/managed_config.toml)",
                    system,
                    'model = "5"\n',
                ),
            ],
            1,
        ),
        requirements=LayerStack(
            [
                ConfigLayer(
                    f"{host.system}/requirements.toml", system, 'allowed_sandbox_modes = ["read-only"]\n'
                ),
                ConfigLayer(
                    f"{host.system}/managed_config.toml",
                    system,
                    'allowed_sandbox_modes = ["read-only", "workspace-write"]\n',
                ),
            ],
            1,
        ),
    )


def test_a_host_without_configuration_has_no_layers(host: Host) -> None:
    found = host.read("model", requirements=["x"])
    assert (found.config, found.requirements) == (LayerStack([], 0), LayerStack([], 0))


@every_row(
    ("keys", "selected"),
    [
        (["b", "a"], {"a": 1, "b": {"c": {"d": 1}, "e": [1]}}),
        (["b.c.d"], {"b": {"c": {"d": 1}}}),
        (["b.e", "b.c"], {"b": {"c": {"d": 1}, "e": [1]}}),
        (["b.c", "b"], {"b": {"c": {"d": 1}, "e": [1]}}),
        (["b", "b.c"], {"b": {"c": {"d": 1}, "e": [1]}}),
        (["a.x"], {"a": 1}),
        (["b.e.x"], {"b": {"e": [1]}}),
        (["b.none"], {"b": {}}),
        (["none", "none.x"], {}),
    ],
)
def test_selection_keeps_what_the_paths_name(keys: list[str], selected: Table) -> None:
    table: Table = {"a": 1, "b": {"c": {"d": 1}, "e": [1]}}
    found = select(table, tree_of(key.split(".") for key in keys))
    assert found == selected
    assert list(found) == list(selected)


def test_every_kind_of_value_survives(host: Host) -> None:
    text = """
        [all]
        text = "a\\n\\"b\\" \\u007f é"
        numbers = [1, -2, 0x10, 1.5, 1e30, inf]
        times = [1979-05-27T07:32:00Z, 1979-05-27T00:32:00.5, 1979-05-27, 07:32:00]
        mixed = [true, {a = [{}]}, [[]]]
        empty = {}
        "quoted.key" = {"" = 1}
        [[all.tables]]
        n = 1
        [all.tables.sub]
        [[all.tables]]
    """
    host.user(text)
    [layer] = host.read("all").config.layers
    assert tomllib.loads(layer.toml) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("config", "requirements", "cwd", "message"),
    [
        ([], [], "file:///srv", "at least one config or requirements path is required"),
        ([[]], [], "file:///srv", "TOML paths must contain at least one key segment"),
        ([["a"]], [[]], "file:///srv", "TOML paths must contain at least one key segment"),
        ([["a"]], [], "file:///C:/x", "'file:///C:/x' is invalid on"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    config: list[list[str]], requirements: list[list[str]], cwd: str, message: str
) -> None:
    params = EnvironmentConfigReadParams(PathUri.parse(cwd), config, requirements)
    with pytest.raises(UsageError, match=f"^{message}"):
        read_config(params, environ={}, home="/nonexistent", hostname=None)


@pytest.mark.parametrize("content", [b"token = 'hunter2' hunter2", b"a = '\xff'", b"a = " + b"[" * 9999])
@pytest.mark.parametrize("name", ["config.toml", "managed_config.toml", "requirements.toml"])
def test_a_broken_file_fails_without_being_quoted(host: Host, name: str, content: bytes) -> None:
    put(host.system / name, content)
    with pytest.raises(OperationFailed, match=r"^failed to load executor-local config: .*/etc/") as caught:
        host.read("model")
    assert "hunter2" not in str(caught.value)


def test_what_is_no_file_or_too_large_fails(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.system / "config.toml").mkdir(parents=True)
    with pytest.raises(OperationFailed):
        host.read("model")
    (host.system / "config.toml").rmdir()
    put(host.system / "config.toml", "a = 1\nmodel = 1\n")
    monkeypatch.setattr(executorconfig, "MAX_CONFIG_BYTES", 5)
    with pytest.raises(OperationFailed):
        host.read("model")


def test_an_unreadable_file_fails(host: Host) -> None:
    put(host.home / ".codex")
    with pytest.raises(OperationFailed):
        host.read("model")


def test_a_value_nested_too_deeply_to_write_fails(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Table = {}
    for _ in range(5000):
        deep = {"model": deep}
    monkeypatch.setattr(executorconfig, "select", lambda table, _keys: deep if table else {})
    host.user("model = 1\n")
    with pytest.raises(OperationFailed):
        host.read("model")


def test_the_codex_home_is_the_given_directory_or_in_the_home(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_codex_home({"CODEX_HOME": str(tmp_path / "link")}, None) == str(tmp_path / "real")
    assert find_codex_home({"CODEX_HOME": ""}, "/home/dev") == "/home/dev/.codex"


@pytest.mark.parametrize("given", ["none", "file"])
def test_a_codex_home_that_is_not_there_fails(tmp_path: Path, given: str) -> None:
    put(tmp_path / "file")
    with pytest.raises(OperationFailed, match=r"^failed to find Codex home: CODEX_HOME points to"):
        find_codex_home({"CODEX_HOME": str(tmp_path / given)}, "/home/dev")


def test_without_home_there_is_no_codex_home() -> None:
    with pytest.raises(OperationFailed):
        find_codex_home({}, None)


def test_nobody_and_nowhere_are_said(tmp_path: Path) -> None:
    params = EnvironmentConfigReadParams(PathUri.parse("file:///"), [["a"]], [])
    environ = {"CODEX_HOME": str(tmp_path)}
    found = read_config(params, environ=environ, home=None, hostname=None, system_dir=str(tmp_path))
    assert (found.user_home_dir, found.hostname) == (None, None)


def test_a_project_counts_only_if_it_is_trusted(host: Host) -> None:
    git(host.project)
    put(host.project / ".codex/config.toml", 'model = "project"\n')
    assert host.shown() == []
    host.trust({host.project: UNTRUSTED})
    assert host.shown() == []
    host.trust({host.project: TRUSTED})
    assert host.shown() == ["project"]


def test_an_untrusted_project_is_not_even_parsed(host: Host) -> None:
    put(host.project / ".codex/config.toml", "broken")
    assert host.shown() == []


@pytest.mark.parametrize("stronger", ["managed_config.toml", None])
def test_the_strongest_word_on_trust_decides(host: Host, stronger: str | None) -> None:
    put(host.project / ".codex/config.toml", 'model = "project"\n')
    put(host.system / "config.toml", f'[projects."{host.project}"]\n{TRUSTED}')
    host.trust({host.project: UNTRUSTED})
    if stronger:
        put(host.system / stronger, f'[projects."{host.project}"]\n{TRUSTED}')
    assert host.shown() == (["project"] if stronger else [])


def test_trust_of_the_root_holds_below_and_may_be_taken_back_there(host: Host) -> None:
    git(host.project)
    for place in (".", "a", "a/b"):
        put(host.project / place / ".codex/config.toml", f'model = "{place}"\n')
    host.trust({host.project: TRUSTED, host.project / "a": UNTRUSTED})
    assert host.shown(cwd=host.project / "a/b") == [".", "a/b"]
    host.trust({host.project / "a": TRUSTED})
    assert host.shown(cwd=host.project / "a/b") == ["a"]


def test_trust_is_given_to_either_spelling_of_a_linked_directory(host: Host) -> None:
    put(host.project / ".codex/config.toml", 'model = "project"\n')
    link = host.home / "link"
    link.symlink_to(host.project)
    for trusted, cwd, shown in ((host.project, link, 1), (link, link, 1), (link, host.project, 0)):
        host.trust({trusted: TRUSTED})
        assert len(host.shown(cwd=cwd)) == shown


@pytest.mark.parametrize(
    ("git_content", "markers", "is_root"),
    [
        ("HEAD", None, True),
        ("config", None, False),
        (None, None, True),
        ("HEAD", '["package.json"]', False),
        (None, '["package.json", ".git"]', True),
        ("HEAD", "[]", False),
    ],
)
def test_the_project_root_is_where_a_marker_is(
    host: Host, git_content: str | None, markers: str | None, is_root: bool
) -> None:
    dot_git = host.project / ".git"
    put(dot_git / git_content if git_content else dot_git)
    put(host.project / ".codex/config.toml", 'model = "project"\n')
    sub = host.project / "sub"
    sub.mkdir()
    host.trust({host.project: TRUSTED}, f"project_root_markers = {markers}\n" if markers else "")
    assert host.shown(cwd=sub) == (["project"] if is_root else [])


@pytest.mark.parametrize(
    "text",
    [
        "project_root_markers = 3",
        "project_root_markers = [3]",
        "projects = 3",
        "[projects]\nx = 'trusted'",
        "[projects.x]\ntrust_level = 'Trusted'",
        "[projects.x]\ntrust_level = ['trusted']",
    ],
)
def test_trust_that_cannot_be_understood_fails(host: Host, text: str) -> None:
    host.user(text)
    with pytest.raises(OperationFailed):
        host.read("model")


def test_a_project_that_says_nothing_of_trust_changes_nothing(host: Host) -> None:
    put(host.project / ".codex/config.toml", 'model = "project"\n')
    host.trust({host.project: TRUSTED})
    put(host.system / "managed_config.toml", f'[projects."{host.project}"]\n')
    assert host.shown() == ["project"]


def test_a_project_cannot_say_whom_to_talk_to(host: Host) -> None:
    host.trust({host.project: TRUSTED})
    keys = ("notify", "model_provider", "openai_base_url", "profile", "sandbox_mode")
    put(host.project / ".codex/config.toml", "".join(f'{key} = "{key}"\n' for key in keys))
    assert host.shown(*keys) == ["sandbox_mode"]


def test_the_codex_home_is_not_a_project_layer(host: Host) -> None:
    host.trust({host.home: TRUSTED}, 'model = "user"\n')
    assert host.shown(cwd=host.home) == ["user"]


class Worktree:
    """A main checkout with a linked worktree beside it, both with configuration."""

    def __init__(self, host: Host) -> None:
        self.main, self.linked = git(host.home / "main"), host.home / "linked"
        self.git_dir = self.main / ".git/worktrees/linked"
        put(self.linked / ".git", f"gitdir: {self.git_dir}\n")
        put(self.git_dir / "gitdir", f"{self.linked}/.git\n")
        put(self.git_dir / "commondir", "../..\n")
        for place in ("main", "main/sub", "linked", "linked/sub"):
            text = f'model = "{place}"\nhooks = "hooks of {place}"\n'
            put(host.home / place / ".codex/config.toml", text)


def test_trust_of_the_main_checkout_holds_in_a_worktree_whose_hooks_are_the_main_ones(host: Host) -> None:
    tree = Worktree(host)
    host.trust({tree.main: TRUSTED})
    shown = host.shown("model", "hooks", cwd=tree.linked / "sub")
    assert shown == ["linked", "hooks of main", "linked/sub", "hooks of main/sub"]


def test_hooks_of_an_untrusted_main_checkout_are_not_taken(host: Host) -> None:
    tree = Worktree(host)
    host.trust({tree.main: UNTRUSTED, tree.linked: TRUSTED})
    assert host.shown("model", "hooks", cwd=tree.linked / "sub") == ["linked", "linked/sub"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("gitdir", "/elsewhere/.git"),
        ("gitdir", None),
        ("commondir", None),
        ("commondir", "../.." + " " * 20_000),
        ("commondir", "../../../bare"),
        ("../../../../linked/.git", "../main/.git/worktrees/linked"),
    ],
)
def test_a_worktree_the_repository_does_not_know_is_not_trusted(
    host: Host, name: str, content: str | None
) -> None:
    tree = Worktree(host)
    host.trust({tree.main: TRUSTED})
    (tree.git_dir / name).unlink()
    if content is not None:
        put(tree.git_dir / name, content)
    assert host.shown("model", "hooks", cwd=tree.linked) == []


GRANULAR: dict[str, object] = {"sandbox_approval": True, "rules": False, "mcp_elicitations": True}


@every_row(
    ("managed", "demands"),
    [
        ({}, {}),
        ({"approval_policy": "never"}, {"allowed_approval_policies": ["never"]}),
        ({"approval_policy": "on-failure"}, {"allowed_approval_policies": ["on-request"]}),
        (
            {"approval_policy": {"granular": GRANULAR}},
            {
                "allowed_approval_policies": [
                    {"granular": {**GRANULAR, "skill_approval": False, "request_permissions": False}}
                ]
            },
        ),
        ({"approvals_reviewer": "user"}, {"allowed_approvals_reviewers": ["user"]}),
        ({"approvals_reviewer": "auto_review"}, {"allowed_approvals_reviewers": ["auto_review", "user"]}),
        ({"sandbox_mode": "read-only"}, {"allowed_sandbox_modes": ["read-only"]}),
        (
            {"sandbox_mode": "danger-full-access"},
            {"allowed_sandbox_modes": ["read-only", "danger-full-access"]},
        ),
    ],
)
def test_managed_configuration_implies_requirements(managed: Table, demands: Table) -> None:
    assert implied_requirements(managed) == demands


@every_row(
    "managed",
    [
        {"approval_policy": "bogus"},
        {"approval_policy": 7},
        {"approval_policy": {"granular": {}}},
        {"approval_policy": {"granular": {**GRANULAR, "rules": "yes"}}},
        {"approvals_reviewer": "bogus"},
        {"sandbox_mode": ["read-only"]},
    ],
)
def test_a_managed_demand_that_is_not_understood_is_never_dropped(managed: Table) -> None:
    with pytest.raises(HoldfastError):
        implied_requirements(managed)


def test_a_small_file_comes_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert read_regular(str(tmp_path / "file"), 3) == b"abc"


def test_a_large_file_comes_with_one_byte_too_many(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert read_regular(str(tmp_path / "file"), 3) == b"abcd"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert read_regular(str(tmp_path), 3) is None


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_regular(str(tmp_path / "fifo"), 3) is None


def test_a_fifo_that_replaces_the_file_meanwhile_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    seen = os.stat(tmp_path / "file")
    (tmp_path / "file").unlink()
    os.mkfifo(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda _path: seen)
    assert read_regular(str(tmp_path / "file"), 3) is None


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(str(tmp_path / "file"), 3)
