"""`holdfast config codex` and the real Codex: what was written is in force, whoever says otherwise."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import provider, warm
from tests.support.codex import CodexClient, requires_codex
from tests.support.patience import patient
from tests.support.provider import scripted, turns
from tests.support.servers import holdfast_server, isolated_environment
from tests.support.tiers import DEEP

TIMEOUT_S = patient(120)
PROVIDER = "http://127.0.0.1:9/v1"  # a thread is started, no turn taken: nobody has to listen
FULL = 'sandbox_mode = "danger-full-access"\n'


class Bench:
    """A home and a repository that lie in no directory for temporary files."""

    def __init__(self, base: Path) -> None:
        self.binary = requires_codex()
        self.client = CodexClient(self.binary, base)
        self.base = base
        self.repo = self.client.workspace
        self.file = base / "client" / ".codex" / "config.toml"
        self.client.configure(PROVIDER)
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True, timeout=TIMEOUT_S)

    def layer(self, text: str) -> None:
        """What the repository says."""
        (self.repo / ".codex").mkdir(exist_ok=True)
        (self.repo / ".codex" / "config.toml").write_text(text)

    def run(self, command: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
        home = self.file.parent
        words = [command, "--home", str(home), "--cwd", str(self.repo), *map(str, options)]
        env = isolated_environment(self.base / "client") | {"CODEX_BIN": str(self.binary)}
        return warm.run(["config", "codex", *words], env=env, cwd=self.base, timeout=TIMEOUT_S)

    def done(self, command: str, *options: str | Path) -> dict[str, Any]:
        told = self.run(command, "--json", *options)
        assert told.returncode == 0, told.stdout + told.stderr
        tree: dict[str, Any] = json.loads(told.stdout)
        assert tree["schemaVersion"] == 1
        return tree

    def differing(self, *options: str | Path) -> dict[str, Any]:
        told = self.run("check", "--json", *options)
        assert told.returncode == 1, told.stdout + told.stderr
        found = json.loads(told.stdout)["differences"]
        return {".".join(each["key"]): each for each in found}


@pytest.fixture
def bench() -> Iterator[Bench]:
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-interop-", dir="/var/tmp")))
    try:
        yield Bench(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


WISHES: Final[list[tuple[tuple[str, ...], str]]] = [
    ((), "workspace-write"),
    (("--network", "full"), "workspace-write"),
    (("--writes", "nothing"), "read-only"),
    (("--network", "a.example", "--network", "*.b.example"), "profile"),
    (("--writes", "git", "--network", "full"), "profile"),
    (("--writes", "everything", "--boundary", "container"), "danger-full-access"),
]


@pytest.mark.parametrize(("options", "mode"), WISHES)
def test_what_was_applied_is_in_force(bench: Bench, options: tuple[str, ...], mode: str) -> None:
    assert bench.done("apply", *options)["decision"]["mode"] == mode
    assert bench.done("check", *options)["differences"] == []


@pytest.mark.parametrize(
    "options", [pytest.param(wish, marks=() if "git" in wish else DEEP) for wish, _ in WISHES]
)
def test_a_plan_changes_nothing_a_second_time_neither_and_removal_leaves_what_was(
    bench: Bench, options: tuple[str, ...]
) -> None:
    before = bench.file.read_bytes()
    assert bench.differing(*options)
    assert bench.done("plan", *options)["changed"]
    assert bench.file.read_bytes() == before
    bench.done("apply", *options)
    assert not bench.done("apply", *options)["changed"]
    assert bench.done("remove")["changed"]
    assert bench.file.read_bytes() == before


def test_a_board_is_the_one_root_that_is_added(bench: Bench) -> None:
    board = bench.base / "board"
    board.mkdir()
    bench.done("apply", "--board", board)
    assert bench.done("check", "--board", board)["differences"] == []
    assert list(bench.differing()) == ["sandbox_workspace_write.writable_roots"]


def test_a_value_of_a_trusted_repository_is_seen_with_its_origin(bench: Bench) -> None:
    bench.layer(FULL)
    bench.done("apply", "--trusted", bench.repo)
    found = bench.differing("--trusted", bench.repo)
    assert found["sandbox_mode"]["found"] == "danger-full-access"
    assert str(bench.repo) in found["sandbox_mode"]["origin"]


def test_the_other_vocabulary_and_an_added_root_are_seen(bench: Bench) -> None:
    bench.layer(
        'default_permissions = ":danger-full-access"\n[sandbox_workspace_write]\nwritable_roots = ["/srv"]\n'
    )
    bench.done("apply", "--trusted", bench.repo)
    found = bench.differing("--trusted", bench.repo)
    assert {"default_permissions", "sandbox_workspace_write.writable_roots"} <= set(found)


def test_a_repository_that_is_not_trusted_changes_nothing(bench: Bench) -> None:
    bench.layer(FULL)
    bench.done("apply")
    assert bench.done("check")["differences"] == []


def test_a_value_of_the_launch_line_is_seen(bench: Bench) -> None:
    bench.done("apply")
    found = bench.differing("-c", "sandbox_workspace_write.network_access=true")
    assert found["sandbox_workspace_write.network_access"]["found"] is True


def test_a_mode_of_the_launch_line_is_seen_above_every_override(bench: Bench) -> None:
    bench.done("apply")
    assert bench.done("check", "-s", "workspace-write")["differences"] == []
    found = bench.differing("-c", 'sandbox_mode="read-only"', "-s", "danger-full-access")
    assert found["sandbox_mode"] == {
        "key": ["sandbox_mode"],
        "decided": "workspace-write",
        "found": "danger-full-access",
        "origin": "-s",
    }


@pytest.mark.parametrize("old", [False, True])
def test_a_file_that_codex_refuses_is_not_written(bench: Bench, old: bool) -> None:
    """Also by one that has no option to print its start."""
    if old:
        wrapper = bench.base / "codex"
        wrapper.write_text(
            f'#!/bin/sh\ncase "$*" in *--print-startup*) exit 2;; esac\nexec {bench.binary} "$@"\n'
        )
        wrapper.chmod(0o755)
        bench.binary = wrapper
        bench.done("apply")
    broken = bench.file.read_text().replace("check_for_update_on_startup = false\n", 'web_search = "bogus"\n')
    bench.file.write_text(broken)
    told = bench.run("apply")
    assert told.returncode == 1, told.stdout + told.stderr
    assert bench.file.read_text() == broken
    assert not list(bench.file.parent.glob(".holdfast-check-*"))


def test_full_access_without_a_boundary_is_refused_and_nothing_written(bench: Bench) -> None:
    before = bench.file.read_bytes()
    for command in ("plan", "apply", "check"):
        assert bench.run(command, "--writes", "everything").returncode == 125
        assert bench.run(command, "--writes", "everything", "--boundary", "user").returncode == 125
    assert bench.file.read_bytes() == before


def test_a_home_that_commands_could_write_is_refused(bench: Bench) -> None:
    assert bench.run("apply", "--writable", bench.base).returncode == 125


async def sandbox_of_a_thread(bench: Bench) -> str:
    async with bench.client.app_server() as server:
        result = await server.call("thread/start", {"cwd": str(bench.repo)})
        kind: str = result["sandbox"]["type"]
        return kind


async def test_a_repository_cannot_trust_itself_into_full_access(bench: Bench) -> None:
    bench.layer(FULL)
    await asyncio.to_thread(bench.done, "apply")
    written = bench.file.read_bytes()
    assert await sandbox_of_a_thread(bench) == "workspaceWrite"
    assert bench.file.read_bytes() == written


async def test_without_our_trust_decision_it_does(bench: Bench) -> None:
    """The hole is real: the same file without the block of trust."""
    bench.layer(FULL)
    bench.file.write_text('sandbox_mode = "workspace-write"\n' + bench.file.read_text())
    assert await sandbox_of_a_thread(bench) == "dangerFullAccess"
    assert 'trust_level = "trusted"' in bench.file.read_text()


# --- an environment of ours

STARTED_BY: Final = "tr '\\0' ' ' < /proc/$PPID/cmdline; exit 3"  # our launcher is Python, Codex is not
THEIRS: Final = '# mine\n[[environments]]\nid = "theirs"\nprogram = "/bin/true"\n'
TOKEN: Final = "t0ken-of-this-test"


@pytest.mark.parametrize("chosen", ["by default", "by name"])
async def test_codex_runs_a_command_in_the_environment_that_was_written(bench: Bench, chosen: str) -> None:
    file = bench.file.with_name("environments.toml")
    file.write_text(THEIRS)
    options = ["--environment", "holdfast", *(["--environment-default"] if chosen == "by default" else [])]
    async with scripted(turns([provider.command("c1", STARTED_BY)])) as model:
        bench.client.configure(model.url)
        told = await asyncio.to_thread(bench.done, "apply", *options)
        assert told["environments"]["changed"]
        assert (await asyncio.to_thread(bench.done, "check", *options))["differences"] == []
        if chosen == "by default":
            await bench.client.execute()
        else:
            async with bench.client.app_server() as app:
                await app.take_turn(await app.start_thread("holdfast", bench.repo))
    assert model.exit_code("c1") == 3
    assert "python" in model.output("c1")
    assert file.stat().st_mode & 0o777 == 0o600
    assert not (await asyncio.to_thread(bench.done, "apply", *options))["environments"]["changed"]
    assert (await asyncio.to_thread(bench.done, "remove"))["changed"]
    assert file.read_text() == THEIRS


async def test_without_the_entry_codex_runs_it_itself(bench: Bench) -> None:
    async with scripted(turns([provider.command("c1", STARTED_BY)])) as model:
        bench.client.configure(model.url)
        await asyncio.to_thread(bench.done, "apply")
        await bench.client.execute()
    assert model.exit_code("c1") == 3
    assert "python" not in model.output("c1")


async def test_a_server_that_listens_gets_its_token_and_nobody_is_shown_it(bench: Bench) -> None:
    token = bench.base / "token"
    token.write_text(f"{TOKEN}\n")
    auth = ("--ws-auth", "capability-token", "--ws-token-file", str(token))
    async with (
        holdfast_server(bench.base / "server", *auth) as server,
        scripted(turns([provider.command("c1", STARTED_BY)])) as model,
    ):
        bench.client.configure(model.url)
        entry = ("--environment", "there", "--environment-url", server.url, "--environment-token-file", token)
        for verb in ("plan", "apply", "check"):
            told = await asyncio.to_thread(bench.run, verb, *entry)
            assert told.returncode == (0 if verb != "check" else told.returncode), told.stderr
            assert TOKEN not in told.stdout + told.stderr
        async with bench.client.app_server() as app:
            await app.take_turn(await app.start_thread("there", bench.repo))
    assert model.exit_code("c1") == 3
    assert TOKEN in bench.file.with_name("environments.toml").read_text()
    assert TOKEN not in bench.file.read_text()


def test_environments_that_codex_refuses_are_not_written(bench: Bench) -> None:
    file, before = bench.file.with_name("environments.toml"), bench.file.read_bytes()
    file.write_text("unknown = 1\n")
    told = bench.run("apply", "--environment", "holdfast")
    assert told.returncode == 1, told.stdout + told.stderr
    assert "environments.toml" in told.stderr
    assert file.read_text() == "unknown = 1\n"
    assert bench.file.read_bytes() == before


ADMIN = """
import sys
from pathlib import Path
from holdfast.agentconfig.clients import read_codex_requirements

admin = read_codex_requirements(Path(sys.argv[1]))
print(admin.modes, admin.approvals, admin.profiles)
"""
DEMANDS = (
    'allowed_sandbox_modes = ["read-only", "workspace-write"]\nallowed_approval_policies = ["on-request"]\n'
)


def test_what_an_administrator_demands_is_known(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=False, timeout=TIMEOUT_S, stderr=subprocess.DEVNULL)
    (etc / "codex").mkdir(exist_ok=True)
    (etc / "codex" / "requirements.toml").write_text(DEMANDS)
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    inside += ["sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc)]

    def ask(*around: str) -> str:
        argv = [*around, sys.executable, "-c", ADMIN, str(requires_codex())]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert ask(*inside) == "('read-only', 'workspace-write') ('on-request',) False"
    assert ask() == "None None False"
