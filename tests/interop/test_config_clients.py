"""`holdfast config claude` and `opencode` with the real ones: what was written is in force, or check says."""

import functools
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm
from tests.support.agents import ENV, model, requires_agent
from tests.support.patience import patient
from tests.support.servers import isolated_environment
from tests.support.tiers import sizes

TIMEOUT_S = patient(170)  # a check starts OpenCode three times, on a machine that does much else
OWN = {"claude": ".claude/settings.json", "opencode": ".config/opencode/opencode.json"}
PROJECT = {"claude": ".claude/settings.json", "opencode": "opencode.json"}
# OpenCode answers once: to collect its garbage and to optimise its code costs a quarter, and never pays.
BRIEF = {"BUN_JSC_useGC": "0", "BUN_JSC_useDFGJIT": "0"}
pytestmark = pytest.mark.timeout(680)


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
        found = isolated_environment(self.user) | BRIEF
        return found | {ENV[self.agent]: str(self.binary), "PATH": f"{found['PATH']}:{stub}"}

    def run(self, command: str, *options: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        words = [command, "--home", str(self.home), "--cwd", str(self.repo), *map(str, options)]
        env = self.environment | more
        return warm.run(["config", self.agent, *words], env=env, cwd=self.base, timeout=TIMEOUT_S)

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


@pytest.fixture
def claude(base: Path) -> Bench:
    return Bench("claude", base)


@pytest.fixture
def opencode(base: Path) -> Bench:
    """It says its version at once: to start for that takes it as long as everything else that it is asked."""
    bench = Bench("opencode", base)
    known = base / "opencode"
    real, version = shlex.quote(str(bench.binary)), version_of(bench.binary)
    known.write_text(f'#!/bin/sh\n[ "$*" = --version ] && exec echo {version}\nexec {real} "$@"\n')
    known.chmod(0o755)
    bench.binary = known
    return bench


@functools.cache
def version_of(binary: Path) -> str:
    asked = [str(binary), "--version"]
    with tempfile.TemporaryDirectory(prefix="holdfast-interop-", dir="/var/tmp") as home:
        return subprocess.run(
            asked,
            env=isolated_environment(Path(home)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        ).stdout.strip()


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


def cycle(bench: Bench, *options: str | Path) -> None:
    """Written, in force, written again without a change, and gone."""
    bench.done("apply", *options)
    told = bench.done("check", *options)
    assert told["differences"] == []
    assert told["notVerified"]
    assert not bench.done("apply", *options)["changed"]
    assert bench.done("remove")["changed"]
    assert not bench.file.exists()


@sizes("all_of_it", quick=False, deep=True)
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--writes", "nothing"),
        ("--network", "full"),
        ("--network", "a.example", "--network", "**.b.example"),
        ("--writes", "everything", "--boundary", "container"),
    ],
)
def test_what_was_applied_for_claude_is_in_force_and_removed_again(
    claude: Bench, options: tuple[str, ...], all_of_it: bool
) -> None:
    if all_of_it or not options:
        cycle(claude, *options)
    else:
        claude.done("apply", *options)
        assert claude.done("check", *options)["differences"] == []


def test_what_was_applied_for_opencode_is_in_force_and_removed_again(opencode: Bench) -> None:
    board = opencode.base / "board"
    board.mkdir()
    cycle(opencode, "--board", board, "--network", "a.example")


def test_a_configuration_of_the_user_that_opencode_refuses_is_named(opencode: Bench) -> None:
    own = opencode.user / OWN["opencode"]
    opencode.write(own, {"permission": {"webfetch": {"https://a.example/*": "allow"}}})
    opencode.done("apply")
    told = opencode.run("check")
    assert told.returncode == 78, told.stdout + told.stderr
    assert "opencode.json" in told.stderr
    assert "a.example" not in told.stderr


def test_a_board_is_the_one_root_that_is_added_for_claude(claude: Bench) -> None:
    board = claude.base / "board"
    board.mkdir()
    assert any("broker" in note for note in claude.done("apply", "--board", board)["decision"]["notes"])
    assert claude.done("check", "--board", board)["differences"] == []
    roots = {"permissions.allow", "permissions.additionalDirectories", "sandbox.filesystem.allowWrite"}
    assert set(claude.differing()) == roots


def test_a_repository_changes_claude_only_if_it_is_trusted_and_that_is_seen(claude: Bench) -> None:
    claude.write(claude.repo / PROJECT["claude"], LOOSE["claude"])
    assert claude.done("apply")["projectLayers"] == [str(claude.repo / PROJECT["claude"])]
    assert claude.done("check")["differences"] == []
    found = claude.differing("--trusted", claude.repo)
    assert set(found) == {"permissions.allow", "sandbox.filesystem.allowWrite"}
    assert found["permissions.allow"]["origin"] == "projectSettings"


def test_a_repository_changes_opencode_only_if_it_is_trusted_and_that_is_seen(opencode: Bench) -> None:
    """Rules of the user's that are about no agent change nothing: ours are after them."""
    own = opencode.user / OWN["opencode"]
    general = {"bash": "ask", "external_directory": {"*": "allow", "/etc/*": "allow"}}
    opencode.write(own, {"permission": general})
    before = own.read_bytes()
    opencode.write(opencode.repo / PROJECT["opencode"], LOOSE["opencode"])
    assert opencode.done("apply")["projectLayers"] == [str(opencode.repo / PROJECT["opencode"])]
    assert opencode.done("check")["differences"] == []
    assert set(opencode.differing("--trusted", opencode.repo)) == {"agent.build.permission"}
    assert own.read_bytes() == before
    assert [path.name for path in own.parent.iterdir()] == [own.name]


def test_what_the_user_allows_claude_in_a_file_of_their_own_is_seen_and_the_file_left_alone(
    claude: Bench,
) -> None:
    own = claude.user / OWN["claude"]
    claude.write(own, LOOSE["claude"])
    before = own.read_bytes()
    claude.done("apply")
    assert claude.differing()["permissions.allow"]["origin"] == "userSettings"
    assert own.read_bytes() == before


def test_a_file_of_ours_that_was_edited_is_seen_and_written_anew(claude: Bench) -> None:
    claude.done("apply")
    tree = json.loads(claude.file.read_text())
    tree["sandbox"]["enabled"] = False
    claude.file.write_text(json.dumps(tree))
    assert "sandbox.enabled" in claude.differing()
    assert claude.done("apply")["changed"]
    assert claude.done("check")["differences"] == []


def test_claude_without_what_its_sandbox_needs_is_not_a_pass(claude: Bench) -> None:
    """It would not start, and says so before a first task."""
    claude.done("apply")
    tools = claude.base / "tools"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(shutil.which(name) or "")
    assert claude.run("check", PATH=str(tools)).returncode == 125


def test_opencode_asks_the_rules_that_were_written(base: Path) -> None:
    """Its own tool, called as the agent would call it. OpenCode says its version itself here."""
    opencode = Bench("opencode", base)
    applied = opencode.done("apply", "--writes", "nothing")
    assert not write_file(opencode, applied["launch"], opencode.repo / "denied.txt")
    applied = opencode.done("apply")
    assert write_file(opencode, applied["launch"], opencode.repo / "allowed.txt")


def write_file(bench: Bench, launch: str, path: Path) -> bool:
    variables, _, _ = launch.partition(" opencode run")
    params = json.dumps({"filePath": str(path), "content": "x"})
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
    return path.exists()


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
