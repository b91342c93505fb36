"""A wish with an MCP server as a start: what the CLI is told, and who cannot be told."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.worker.launching import PreparedStart, WorkerSpec, prepare
from holdfast.errors import NotFound, UsageError
from holdfast.sandbox.policy.credentials import credentials
from holdfast.sandbox.policy.policy import Access, Where, bind
from tests.support.logins import HOMES, KEY, set_up
from tests.support.rows import every_row

SERVER = ["/bin/holdfast", "mcp", "--run", "/w/.holdfast/run.json"]


def ready(
    folder: Path, agent: str, binary: str, mcp: list[str] | None, *, relocate: bool = True
) -> PreparedStart:
    program = folder / binary
    program.touch(mode=0o700)
    wish = WorkerSpec(
        agent=agent, cwd="/w", env={"PATH": str(folder)}, prompt="p", mcp=mcp, relocate=relocate
    )
    return prepare(wish, state="/s")


def test_a_cli_with_files_has_them_below_its_own_state(tmp_path: Path) -> None:
    start = ready(tmp_path, "opencode", "opencode", SERVER)
    assert json.loads(start.files["/s/mcp.json"])["mcp"]["holdfast"]["command"] == SERVER
    assert start.environment["OPENCODE_CONFIG"] == "/s/mcp.json"


def test_a_cli_with_arguments_is_told_there(tmp_path: Path) -> None:
    start = ready(tmp_path, "codex", "codex", SERVER)
    assert any(word.startswith("mcp_servers.holdfast=") for word in start.argv)
    assert start.files == {}


@pytest.mark.parametrize("mcp", [None, []], ids=str)
def test_without_a_server_nothing_is_told(tmp_path: Path, mcp: list[str] | None) -> None:
    start = ready(tmp_path, "codex", "codex", mcp)
    assert not any("mcp" in word for word in start.argv)


def test_a_program_that_takes_no_server_is_not_started_without_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ready(tmp_path, "shell", "sh", SERVER)


def test_a_cli_that_would_not_find_the_server_is_not_started(tmp_path: Path) -> None:
    assert "/s/.gemini/settings.json" in ready(tmp_path, "gemini", "gemini", SERVER).files
    with pytest.raises(UsageError):
        ready(tmp_path, "gemini", "gemini", SERVER, relocate=False)


@pytest.mark.parametrize(
    ("agent", "advice"), [("codex", "npm install -g @openai/codex"), ("aider", "pipx install aider-chat")]
)
def test_the_advice_for_a_missing_program_brings_it_onto_the_path(
    tmp_path: Path, agent: str, advice: str
) -> None:
    with pytest.raises(NotFound) as caught:
        prepare(WorkerSpec(agent=agent, cwd="/w", env={"PATH": str(tmp_path)}, prompt="p"), state="/s")
    assert caught.value.remedy == advice


def test_what_is_granted_before_it_exists_is_made(tmp_path: Path) -> None:
    (tmp_path / "sh").touch(mode=0o700)
    granted = [str(tmp_path / name) for name in (".npm/_logs", "notes.txt", "none/notes.txt")]
    wish = WorkerSpec(
        agent="shell", cwd="/w", env={"PATH": str(tmp_path)}, arguments=["-c", "true"], writable=granted
    )
    prepare(wish, state="/s")
    assert (tmp_path / ".npm" / "_logs").is_dir()
    assert (tmp_path / "notes.txt").read_bytes() == b""
    assert not (tmp_path / "none").exists()


# --- what of its user's enters


def logged_in(folder: Path, name: str, *, hidden: bool = True, **more: Any) -> PreparedStart:
    """A start by somebody who is logged in, all of whose credentials are hidden."""
    home, bin = folder / "home", folder / "bin"
    for made in (home, bin):
        made.mkdir()
    set_up(name, home, "http://127.0.0.1:1")
    (home / ".ssh").mkdir()
    cli = HOMES[name].cli
    (bin / cli).touch(mode=0o700)
    env = {"PATH": str(bin), "HOME": str(home)}
    secret = credentials(str(home), granted=()) if hidden else []
    return prepare(WorkerSpec(agent=cli, cwd="/w", env=env, prompt="p", secret=secret, **more), state="/s")


def readable(start: PreparedStart, path: Path) -> bool:
    bound = bind(start.policy.wish, Where("/w", ("/w",)))
    return bound.explain(str(path), Access.READ).allowed


def test_a_login_enters_with_the_state_and_stays_hidden_where_it_is(tmp_path: Path) -> None:
    start = logged_in(tmp_path, "opencode")
    assert KEY in start.files["/s/data/opencode/auth.json"]
    assert start.links == {
        "/s/config/opencode/AGENTS.md": f"{tmp_path}/home/.config/opencode/AGENTS.md",
    }
    assert not readable(start, tmp_path / "home/.local/share/opencode/auth.json")
    assert KEY in start.secrets, "it never appears in what is written down"
    assert set(start.placed) == {
        "data/opencode/auth.json",
        "config/opencode/opencode.json",
        "config/opencode/AGENTS.md",
    }


@every_row("name", ["codex-chatgpt", "claude-subscription", "opencode", "qwen-key"])
def test_its_own_login_is_hidden_where_it_is_whoever_starts_it(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Also where its caller hides nothing: what another worker renews is not to be read there."""
    folder = tmp_path_factory.mktemp("user")
    start = logged_in(folder, name, hidden=False)
    [login, *_] = HOMES[name].files
    assert not readable(start, folder / "home" / login)
    assert readable(start, folder / "home/.ssh/id"), "the control"


def test_one_that_is_sent_to_another_provider_has_nothing_of_its_users(tmp_path: Path) -> None:
    start = logged_in(tmp_path, "codex-chatgpt", base="http://127.0.0.1:2", key="k" * 20, model="m")
    assert (start.files, start.links, start.login, start.given) == ({}, {}, None, ())


def test_one_whose_state_is_not_relocated_reads_its_own_login_where_it_is(tmp_path: Path) -> None:
    start = logged_in(tmp_path, "codex-chatgpt", relocate=False)
    assert (start.files, start.login) == ({}, None)
    assert readable(start, tmp_path / "home/.codex/auth.json")
    assert not readable(start, tmp_path / "home/.ssh/id")


def test_what_is_shown_inside_of_something_hidden_is_in_sight_alone(tmp_path: Path) -> None:
    (tmp_path / "home/.qwen/agents").mkdir(parents=True)
    (tmp_path / "home/.qwen/commands").symlink_to("/etc")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/qwen").touch(mode=0o700)
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    secret = [str(tmp_path / "home/.qwen")]
    start = prepare(WorkerSpec(agent="qwen", cwd="/w", env=env, prompt="p", secret=secret), state="/s")
    assert readable(start, tmp_path / "home/.qwen/agents/a.md")
    assert not readable(start, tmp_path / "home/.qwen/settings.json")
    assert not readable(start, tmp_path / "home/.qwen/commands"), "a link is not followed"


def test_what_keeps_a_cli_from_using_its_login_is_not_set(tmp_path: Path) -> None:
    start = logged_in(tmp_path, "opencode")
    assert "OPENCODE_DISABLE_DEFAULT_PLUGINS" in start.environment
    login = tmp_path / "home/.local/share/opencode/auth.json"
    entry = {"type": "oauth", "access": "a" * 20, "refresh": "r" * 20, "expires": 10**13}
    login.write_text(json.dumps({"openai": entry}))
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    again = prepare(WorkerSpec(agent="opencode", cwd="/w", env=env, prompt="p"), state="/s")
    assert again.login is not None
    assert "OPENCODE_DISABLE_DEFAULT_PLUGINS" not in again.environment


@every_row(
    ("version", "told"),
    [
        ("0.166.0", ""),
        ("0.121.0", ""),
        ("0.130.0-linux-x64", ""),
        ("0.120.9", "the oldest that was tried is 0.121; a newer one: npm install -g @openai/codex@latest"),
        ("0.300.1", "the newest that was tried is 0.166.0"),
        ("latest", ""),
    ],
)
def test_a_version_that_nobody_tried_is_told_with_what_to_type(
    tmp_path_factory: pytest.TempPathFactory, version: str, told: str
) -> None:
    folder = tmp_path_factory.mktemp("npm")
    package = folder / "lib/node_modules/@openai/codex-linux-x64"
    (package / "vendor/x/bin").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "@openai/codex", "version": version}))
    (package / "vendor/x/bin/codex").touch(mode=0o700)
    (folder / "codex").symlink_to(package / "vendor/x/bin/codex")
    wish = WorkerSpec(agent="codex", cwd="/w", env={"PATH": str(folder)}, prompt="p", unattended=False)
    assert [note.partition(", and ")[2] for note in prepare(wish, state="/s").notes] == (
        [told] if told else []
    )


def test_that_its_own_sandbox_is_off_is_told(tmp_path: Path) -> None:
    start = ready(tmp_path, "codex", "codex", None)
    assert [note.partition(" (")[0] for note in start.notes] == ["codex: its own sandbox is off"]
