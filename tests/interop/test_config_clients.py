"""`holdfast config claude` and `opencode` with the real ones: what was written is in force, or check says."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import ENV, model, requires_agent
from tests.support.servers import isolated_environment

TIMEOUT_S = 170  # a check starts OpenCode three times, on a machine that does much else
AGENTS = ["claude", "opencode"]
OWN = {"claude": ".claude/settings.json", "opencode": ".config/opencode/opencode.json"}
PROJECT = {"claude": ".claude/settings.json", "opencode": "opencode.json"}
pytestmark = pytest.mark.timeout(TIMEOUT_S * 4)


class Bench:
    """An agent with a home, and a repository, that lie in no directory for temporary files."""

    def __init__(self, agent: str, base: Path) -> None:
        self.agent = agent
        self.binary = requires_agent(agent)
        self.base = base
        self.user = base / "user"
        self.repo = base / "repo"
        self.home = base / "ours"
        self.file = self.home / f"holdfast-{agent}.json"
        for folder in (self.user, self.repo, self.home):
            folder.mkdir()
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True, timeout=TIMEOUT_S)

    @property
    def environment(self) -> dict[str, str]:
        """With something named socat last on the PATH: to start, Claude Code wants to see one."""
        stub = self.base / "bin"
        stub.mkdir(exist_ok=True)
        (stub / "socat").write_text("#!/bin/sh\nexit 1\n")
        (stub / "socat").chmod(0o755)
        found = isolated_environment(self.user)
        return found | {ENV[self.agent]: str(self.binary), "PATH": f"{found['PATH']}:{stub}"}

    def run(self, command: str, *options: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        words = [command, "--home", str(self.home), "--cwd", str(self.repo), *map(str, options)]
        return subprocess.run(
            [sys.executable, "-m", "holdfast", "config", self.agent, *words],
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def done(self, command: str, *options: str | Path) -> dict[str, Any]:
        told = self.run(command, "--json", *options)
        assert told.returncode == 0, told.stdout + told.stderr
        tree: dict[str, Any] = json.loads(told.stdout)
        assert tree["schemaVersion"] == 1
        return tree

    def differing(self, *options: str | Path) -> dict[str, Any]:
        told = self.run("check", "--json", *options)
        assert told.returncode == 1, told.stdout + told.stderr
        return {".".join(each["key"]): each for each in json.loads(told.stdout)["differences"]}

    def write(self, path: Path, tree: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tree))


@pytest.fixture
def base() -> Iterator[Path]:
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-interop-", dir="/var/tmp")))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(params=AGENTS)
def bench(request: pytest.FixtureRequest, base: Path) -> Bench:
    return Bench(request.param, base)


@pytest.fixture
def claude(base: Path) -> Bench:
    return Bench("claude", base)


@pytest.fixture
def opencode(base: Path) -> Bench:
    return Bench("opencode", base)


@pytest.mark.parametrize(
    ("bench", "options"),
    [
        ("claude", ()),
        ("claude", ("--writes", "nothing")),
        ("claude", ("--network", "full")),
        ("claude", ("--network", "a.example", "--network", "**.b.example")),
        ("claude", ("--writes", "everything", "--boundary", "container")),
        ("opencode", ("--writes", "nothing")),
        ("opencode", ("--network", "a.example", "--network", "**.b.example")),
        ("opencode", ("--writes", "everything", "--boundary", "container")),
    ],
    indirect=["bench"],
)
def test_what_was_applied_is_in_force_and_removed_again(bench: Bench, options: tuple[str, ...]) -> None:
    assert bench.done("plan", *options)["changed"]
    assert not bench.file.exists()
    bench.done("apply", *options)
    told = bench.done("check", *options)
    assert told["differences"] == []
    assert told["notVerified"]
    assert not bench.done("apply", *options)["changed"]
    assert bench.done("remove")["changed"]
    assert not bench.file.exists()
    assert bench.run("check", *options).returncode == 66


def test_a_board_is_the_one_root_that_is_added(bench: Bench) -> None:
    board = bench.base / "board"
    board.mkdir()
    assert any("broker" in note for note in bench.done("apply", "--board", board)["decision"]["notes"])
    assert bench.done("check", "--board", board)["differences"] == []
    assert bench.differing()


LOOSE: dict[str, object] = {
    "claude": {
        "permissions": {"allow": ["WebFetch"], "defaultMode": "acceptEdits"},
        "sandbox": {"enabled": False, "filesystem": {"allowWrite": ["/srv"]}},
    },
    "opencode": {
        "permission": {"*": "allow", "external_directory": {"*": "allow", "/etc/*": "allow"}},
        "default_agent": "evil",
        "agent": {
            "evil": {"mode": "primary", "permission": {"*": "allow"}},
            "build": {"permission": {"webfetch": "allow"}},
        },
    },
}


def test_a_repository_that_is_not_trusted_changes_nothing(bench: Bench) -> None:
    """Nor do rules of the user's for OpenCode that are about no agent: ours are after them."""
    if bench.agent == "opencode":
        general = {"bash": "ask", "external_directory": {"*": "allow", "/etc/*": "allow"}}
        bench.write(bench.user / OWN["opencode"], {"permission": general})
    bench.write(bench.repo / PROJECT[bench.agent], LOOSE[bench.agent])
    applied = bench.done("apply")
    assert applied["projectLayers"] == [str(bench.repo / PROJECT[bench.agent])]
    assert bench.done("check")["differences"] == []


def test_what_a_trusted_repository_allows_is_seen(bench: Bench) -> None:
    bench.write(bench.repo / PROJECT[bench.agent], LOOSE[bench.agent])
    bench.done("apply", "--trusted", bench.repo)
    expected = {
        "claude": {"permissions.allow", "sandbox.filesystem.allowWrite"},
        "opencode": {"agent.build.permission"},
    }
    assert set(bench.differing("--trusted", bench.repo)) == expected[bench.agent]


def test_what_the_user_allows_in_a_file_of_their_own_is_seen_and_the_file_left_alone(bench: Bench) -> None:
    own = bench.user / OWN[bench.agent]
    bench.write(own, LOOSE[bench.agent])
    before = own.read_bytes()
    bench.done("apply")
    found = bench.differing()
    if bench.agent == "claude":
        assert found["permissions.allow"]["origin"] == "userSettings"
    bench.done("remove")
    assert own.read_bytes() == before


def test_a_file_that_was_edited_is_seen_and_written_anew(bench: Bench) -> None:
    bench.done("apply")
    tree = json.loads(bench.file.read_text())
    if bench.agent == "claude":
        tree["sandbox"]["enabled"] = False
    else:
        tree["agent"]["build"]["permission"]["webfetch"] = "allow"
    bench.file.write_text(json.dumps(tree))
    assert bench.differing()
    assert bench.done("apply")["changed"]
    assert bench.done("check")["differences"] == []


def test_claude_without_what_its_sandbox_needs_is_not_a_pass(claude: Bench) -> None:
    """It would not start, and says so before a first task."""
    claude.done("apply")
    tools = claude.base / "tools"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(shutil.which(name) or "")
    assert claude.run("check", PATH=str(tools)).returncode == 125


def test_opencode_asks_the_rules_that_were_written(opencode: Bench) -> None:
    """Its own tool, called as the agent would call it."""
    opencode.done("apply", "--writes", "nothing")
    assert not _uses_write(opencode, "denied.txt")
    opencode.done("apply")
    assert _uses_write(opencode, "allowed.txt")


def _uses_write(bench: Bench, name: str) -> bool:
    launch = bench.done("plan", "--writes", "workspace" if name == "allowed.txt" else "nothing")["launch"]
    variables = launch.split(" opencode run")[0]
    params = json.dumps({"filePath": str(bench.repo / name), "content": "x"})
    command = [str(bench.binary), "--pure", "debug", "agent", "build", "--tool", "write", "--params", params]
    subprocess.run(
        ["sh", "-c", f"{variables} exec {shlex.join(command)}"],
        env=bench.environment | {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        cwd=bench.repo,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return (bench.repo / name).exists()


@pytest.mark.skipif(shutil.which("socat") is None, reason="socat is not installed")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_claude_can_write_what_was_decided_and_nothing_else(claude: Bench) -> None:
    board, outside = claude.base / "board", claude.base / "outside"
    board.mkdir()
    outside.mkdir()
    launch = claude.done("apply", "--board", board)["launch"]
    places = {"repo": claude.repo, "board": board, "outside": outside, "git": claude.repo / ".git"}
    # In a file: redirections that it can read in a command it judges by the rules, before the sandbox does.
    script = claude.repo / "try.sh"
    script.write_text("".join(f"echo x > {place}/by-command\n" for place in places.values()))
    calls: list[tuple[str, dict[str, object]]] = [
        ("Bash", {"command": "sh try.sh; true", "description": "x"})
    ]
    calls += [("Write", {"file_path": f"{place}/by-tool", "content": "x"}) for place in places.values()]
    with model(calls) as (address, results):
        done = subprocess.run(
            ["sh", "-c", f"{launch.replace('claude', shlex.quote(str(claude.binary)), 1)} go"],
            env=claude.environment
            | {
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": "unused",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
            cwd=claude.repo,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results) == len(calls), results
    written = {name for name, place in places.items() if (place / "by-command").exists()}
    assert written == {"repo", "board"}, results
    assert {name for name, place in places.items() if (place / "by-tool").exists()} == written, results
