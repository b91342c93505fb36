"""The first report as it was posed: Codex on a board with its own sandbox on.

Its commands have `workspace-write` and no network, it reaches its model, and it hands its task over by the
tools that it was given. An executor of ours runs each command, under what the run allows.
"""

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import pytest

from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import TaskStatus
from tests.support.codex import requires_codex
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.provider import Item, Provider, call, command, patch, scripted, turns
from tests.support.tcp import tcp_server
from tests.support.webhosts import make_context

__all__ = ["home_fixture", "yard_fixture"]

YIELD_MS: Final = 30_000  # for a command that starts an interpreter on a busy machine
SUMMARY: Final = "made what was asked for"
KEY: Final = "the-key-of-the-provider"
COMPLETE: Final = call("complete", "kanban_complete", {"summary": SUMMARY}, namespace="mcp__holdfast")

pytestmark = pytest.mark.timeout(180)


@dataclass
class Listener:
    port: int
    callers: int = 0


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """A service of this host."""
    heard = Listener(0)

    async def accept(*_: object) -> None:
        heard.callers += 1

    async with tcp_server(accept) as heard.port:
        yield heard


async def dispatch(yard: Yard, *items: Item, **profile: object) -> tuple[Provider, Task, Run, dict[str, Any]]:
    """One turn for each item, as a task of the board; with the record of its worker."""
    async with scripted(turns(*([item] for item in items))) as model:
        return await dispatch_to(yard, model, model.url.removesuffix("/v1"), **profile)


async def dispatch_to(
    yard: Yard, model: Provider, base: str, **profile: object
) -> tuple[Provider, Task, Run, dict[str, Any]]:
    """A task for codex whose provider is at this address."""
    if not (yard.bin / "codex").exists():
        (yard.bin / "codex").symlink_to(requires_codex())
    name = f"codex{len(list(yard.bin.iterdir()))}{len(profile)}"
    more: dict[str, object] = {"variables": {"HOLDFAST_PROVIDER_KEY": KEY}, **profile}
    yard.profile(name, agent="codex", model="gpt-5.5", provider=base, channel="mcp", **more)
    task = yard.create("Make it.", assignee=name, max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [only] = yard.store.runs(task.id)
    record = yard.home / "workers" / only.id.replace("_", "-") / "record.json"
    return model, yard.store.task(task.id), only, json.loads(record.read_text("utf-8"))


def commands_denied(worker: Path, path: str) -> list[str]:
    """The commands that were refused this path, as the journal of the worker has them."""
    lines = (worker / "evidence.jsonl").read_text("utf-8").splitlines()
    told = [entry["fields"] for line in lines if (entry := json.loads(line))["claim"] == "Denied"]
    return [denied["command"] for denied in told if denied["path"] == path]


def connect_to(listener: Listener) -> str:
    return f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{listener.port} && echo CONNECTED'"


async def test_codex_keeps_its_sandbox_reaches_its_model_and_hands_its_task_over(yard: Yard) -> None:
    outside = yard.folder / "outside"
    outside.mkdir()
    async with listening() as listener:
        script = f"echo it > made.txt; echo x > {outside}/no.txt; {connect_to(listener)}; env"
        made = command("made", script, yield_time_ms=YIELD_MS)
        added = patch("patch", "*** Begin Patch\n*** Add File: patched.txt\n+patched\n*** End Patch")
        login = command("login", f"cat {yard.home}/workers/*/state/environments.toml")
        again = f"echo again > {outside}/no.txt"
        items = (made, added, login, command("again", again), COMPLETE)
        model, task, run, record = await dispatch(yard, *items, network=False)
    assert (task.status, task.result) == (TaskStatus.DONE, SUMMARY), model.outputs
    assert (record["own_sandbox"], record["one_sandbox"]) == (True, None)
    diff = yard.store.file(task.id, run.id, "diff.patch")
    assert b"+it\n" in diff
    assert b"+patched\n" in diff
    said = model.output("made")
    assert "Read-only file system" in said
    assert "CODEX_SANDBOX_NETWORK_DISABLED=1" in said
    assert "CONNECTED" not in said
    assert listener.callers == 0
    assert KEY not in said
    assert not (outside / "no.txt").exists()
    assert model.exit_code("login") == 1
    worker = yard.home / "workers" / record["id"]
    assert (worker / "state" / "environments.toml").is_file()
    assert commands_denied(worker, f"{outside}/no.txt") == [script, again]
    assert not any("its own sandbox is off" in note for note in record["notes"])


async def test_with_the_network_granted_its_commands_have_it_too(yard: Yard) -> None:
    """The positive control of the one above: the same command, the same listener."""
    async with listening() as listener:
        made = command("made", connect_to(listener), yield_time_ms=YIELD_MS)
        model, task, _, record = await dispatch(yard, made, COMPLETE, network=True)
    assert task.status is TaskStatus.DONE, model.outputs
    assert record["own_sandbox"]
    assert "CONNECTED" in model.output("made")
    assert listener.callers == 1


def _place(program: Path, where: Path) -> None:
    try:
        os.link(os.path.realpath(program), where)
    except OSError:  # another file system
        shutil.copy(program, where)


async def test_an_old_codex_shares_one_sandbox_with_its_commands_and_that_is_said(yard: Yard) -> None:
    _place(requires_codex(), yard.bin / "codex-itself")  # the checkout may lie where a worker sees nothing
    version = '[ "$1" = --version ] && echo codex-cli 0.130.0 && exit'
    old = f'#!/bin/sh\n{version}\nexec {yard.bin}/codex-itself "$@"\n'
    (yard.bin / "codex").write_text(old, "utf-8")
    (yard.bin / "codex").chmod(0o755)
    made = command("made", "echo it > made.txt", yield_time_ms=YIELD_MS)
    model, task, _, record = await dispatch(yard, made, COMPLETE)
    assert task.status is TaskStatus.DONE, model.outputs
    assert record["own_sandbox"] is False
    assert record["one_sandbox"] == "its version 0.130.0 is older than 0.166"
    assert "--dangerously-bypass-approvals-and-sandbox" in record["argv"]


def holders(key: str) -> list[str]:
    """Processes that have this key in their environment or arguments, but for us, who test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            shown = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if key.encode() in shown and folder.name != str(os.getpid()):
                found.append(shown.decode("latin-1")[:300])
    return found


def files_with(key: str, *folders: Path) -> list[Path]:
    files = [
        path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    return [path for path in files if key.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "tls", [pytest.param(True, id="tls"), pytest.param(False, id="plain", marks=pytest.mark.deep)]
)
async def test_a_codex_on_the_board_works_with_a_key_that_it_does_not_have(
    yard: Yard, tmp_path: Path, tls: bool
) -> None:
    """It reaches its provider and no other host, and its commands have no network at all."""
    real = yard.environ["THE_KEY"] = f"sk-proj-{token_hex(12)}"  # no other test's worker has it
    look = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env; cat .holdfast/* ../*/state/*; true"
    held: list[str] = []

    async def play(_: Provider) -> AsyncIterator[list[Item]]:
        yield [command("made", f"echo it > made.txt; {look}", yield_time_ms=YIELD_MS)]
        held.extend(holders(real))
        yield [COMPLETE]

    context = make_context(tmp_path)
    more: dict[str, object] = {"key_env": "THE_KEY", "network": False}
    if tls:
        more["hosts"] = {"private": True, "addresses": {"tls.test": "127.0.0.1"}}
        more["variables"] = {"SSL_CERT_FILE": str(tmp_path / "authority.pem")}
    name = "tls.test" if tls else "127.0.0.1"
    async with scripted(play, tls=context if tls else None, name=name) as model:
        base = model.url.removesuffix("/v1")
        _, task, run, record = await dispatch_to(yard, model, base, **more)
    assert (task.status, task.result) == (TaskStatus.DONE, SUMMARY), (model.outputs, record)
    assert record["own_sandbox"]
    assert set(model.credentials) == {real}
    assert held == []
    worker = yard.home / "workers" / record["id"]
    assert files_with(real, worker, yard.home / "board", yard.folder) == []
    assert real not in model.output("made")
    assert b"+it\n" in yard.store.file(task.id, run.id, "diff.patch")
    port = base.rpartition(":")[2]
    assert record["hosts"] == [f"{name}:{port}"]
    assert [
        line
        for line in record["keys"]
        if f"$HOLDFAST_PROVIDER_KEY; it is replaced in headers of requests to {name}" in line
    ]


async def test_a_key_that_is_to_enter_enters_and_that_is_said(yard: Yard) -> None:
    """The control of the one above: the same look finds it."""
    real = yard.environ["THE_KEY"] = f"sk-proj-{token_hex(12)}"
    held: list[str] = []

    async def play(_: Provider) -> AsyncIterator[list[Item]]:
        held.extend(holders(real))
        yield [COMPLETE]

    async with scripted(play) as model:
        base = model.url.removesuffix("/v1")
        _, task, _, record = await dispatch_to(yard, model, base, key_env="THE_KEY", keys_inside=True)
    assert task.status is TaskStatus.DONE, model.outputs
    assert set(model.credentials) == {real}
    assert [shown for shown in held if "codex" in shown]
    assert record["keys"] == ["the key in $HOLDFAST_PROVIDER_KEY enters its sandbox: as asked"]
