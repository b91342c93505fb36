"""A supervisor that is told why: OpenCode with a read-only home, what would help, and the run that has it.

The process of the supervisor, its exec server, the sandbox, the CLI and the tmux pane are real; only the
model is scripted.
"""

import asyncio
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents import sdk
from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.messages import WorkerReport
from tests.support.agent_clis import link_clis, requires_cli
from tests.support.arena import KEY, MODEL, PLACE, PROMPT, Bench, end_exec_server, end_listener
from tests.support.logins import set_up
from tests.support.model import CONTENT, MADE, digest, scripted_model
from tests.support.pane import shows, tmux_server
from tests.support.patience import patient

LIMIT_S: Final = patient(200)


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="story-", dir=PLACE))
    try:
        yield folder
    finally:
        await end_listener(background.supervisor_socket(folder / "h"), signal.SIGTERM)
        await end_exec_server(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(LIMIT_S)
async def test_the_denied_path_is_named_and_what_is_suggested_helps(place: Path) -> None:
    requires_cli("opencode")
    bench, path = Bench(place / "project"), link_clis(place / "bin")
    # It makes folders in three places at once, and the first that is refused ends it: one is to be refused.
    others = [str(bench.home / name) for name in (".cache", ".config")]
    for other in others:
        Path(other).mkdir()
    async with scripted_model() as model, Workers.connect(place / "h") as workers, tmux_server() as socket:

        async def run(name: str, **more: Any) -> tuple[str, list[WorkerReport]]:
            """In a pane that a person can look at; its pane, and all that is told of it until its end."""
            wish: dict[str, Any] = {"model": MODEL, "base": model.url("write"), "key": KEY, "prompt": PROMPT}
            wish["id"] = name
            env = {"HOME": str(bench.home), "PATH": path, "LANG": "C.UTF-8"}
            told = []
            async with Workers.connect(place / "h") as watched:
                await watched.subscribe()  # before it starts: it may be refused before the pane is there
                await workers.run("opencode", cwd=str(bench.work), env=env, tty=True, **wish, **more)
                pane = await sdk.show_in_pane(place / "h", name, socket=socket)
                async for report in watched.changes():
                    if report.id == name:
                        told.append(report)
                        if report.state.ended:
                            break
            return pane, told

        async with asyncio.timeout(LIMIT_S / 2):  # that it is refused is told in seconds, not in minutes
            pane, told = await run("first", relocate=False, writable=others)
        *before_the_end, refused = told
        if before_the_end:  # on a busy machine its end is heard together with what was refused
            [blocked] = [change for change in before_the_end if change.state == "blocked"][:1]
            assert (blocked.detail, blocked.rule) == ("sandbox-path", "denied-again")
        assert any("/opencode.db" in line for line in refused.preflight), "what it would have led to"
        assert (refused.state, refused.failure) == ("failed", "sandbox")
        await shows(socket, pane, "EROFS")
        denials = {denial.path: denial for denial in refused.denials}
        seen = denials[f"{bench.home}/.local"]  # the call that was refused
        assert (seen.access, seen.errno) == ("create", "EROFS")
        assert "outside the writable roots" in seen.rule
        assert seen.grant == f"--allow-write {bench.home}/.local"
        variable, _, where = seen.relocation.partition("=")
        assert variable == "XDG_DATA_HOME"
        assert where.startswith(str(place / "h"))
        assert any(path in refused.about for path in denials)
        assert not list(bench.home.glob(".local*"))

        pane, told = await run("second", relocate=True)
        await shows(socket, pane, MADE)
        done = told[-1]
        assert (done.state, done.flags) == ("completed", [])
        assert [one for one in done.denials if not one.aside] == []
        assert variable in done.environment
    assert _diff(bench.work) == [f"+{CONTENT}"]


@pytest.mark.timeout(LIMIT_S)
async def test_one_that_is_configured_in_its_home_works_at_the_first_try(place: Path) -> None:
    """Its provider in ~/.config and its key in auth.json, as people have them, and nothing said to us."""
    requires_cli("opencode")
    bench, path = Bench(place / "project"), link_clis(place / "bin")
    env = {"HOME": str(bench.home), "PATH": path, "LANG": "C.UTF-8"}
    async with scripted_model() as model, Workers.connect(place / "h") as workers:
        key = set_up("opencode", bench.home, model.url("write"))
        worker = await workers.run("opencode", cwd=str(bench.work), env=env, prompt=PROMPT)
        done = await worker.wait()
        assert (done.state, done.flags) == ("completed", [])
        assert [one for one in done.denials if not one.aside] == []
        assert {request.credential for request in model.requests} == {digest(key)}
        told = (await worker.why()).why
        assert any(line.startswith("its state is relocated: ") for line in told)
        assert any("opencode.json (its settings): copied, without mcp" in line for line in told)
    assert _diff(bench.work) == [f"+{CONTENT}"]


@pytest.mark.timeout(LIMIT_S)
async def test_the_one_grant_that_why_names_is_enough(place: Path) -> None:
    requires_cli("opencode")
    bench, path = Bench(place / "project"), link_clis(place / "bin")
    env = {"HOME": str(bench.home), "PATH": path, "LANG": "C.UTF-8"}
    async with scripted_model() as model, Workers.connect(place / "h") as workers:
        set_up("opencode", bench.home, model.url("write"))
        wish: dict[str, Any] = {"cwd": str(bench.work), "env": env, "prompt": PROMPT, "relocate": False}
        wish["network"] = True  # where its provider is, settings that it may write do not say
        worker = await workers.run("opencode", **wish)
        refused = await worker.wait()
        assert (refused.state, refused.failure) == ("failed", "sandbox")
        told = (await worker.why()).why
        assert f"what is different from a terminal: holdfast worker equivalence {worker.id}" in told
        assert "or let its state be relocated: leave out --no-relocate" in told
        [grant] = [line for line in told if line.startswith("one grant that is enough for all of it: ")]
        options = shlex.split(grant.partition(": ")[2])
        assert set(options[::2]) == {"--allow-write"}
        assert str(bench.home) not in options
        worker = await workers.run("opencode", writable=options[1::2], **wish)
        done = await worker.wait()
        assert (done.state, done.failure) == ("completed", None), (done.about, options)
    assert _diff(bench.work) == [f"+{CONTENT}"]


def _diff(work: Path) -> list[str]:
    """What there is to review: the lines that came in, of the one file that was made."""
    git = ["git", "-C", str(work)]
    subprocess.run([*git, "add", "--intent-to-add", "."], check=True, timeout=patient(30))
    said = subprocess.run(
        [*git, "diff"], check=True, timeout=patient(30), capture_output=True, text=True
    ).stdout
    assert [line for line in said.splitlines() if line.startswith("+++")] == [f"+++ b/{MADE}"]
    return [line for line in said.splitlines() if line.startswith("+") and not line.startswith("+++")]
