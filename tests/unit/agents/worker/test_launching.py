"""A wish with an MCP server as a start: what the CLI is told, and who cannot be told."""

import json
from pathlib import Path

import pytest

from holdfast.agents.worker.launching import PreparedStart, WorkerSpec, prepare
from holdfast.errors import NotFound, UsageError

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
