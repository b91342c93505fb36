"""The real CLIs on their terminals: through the dialogs of a first start, to a decision, and past it."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import WorkerState, WorkerStatus
from holdfast.agents.worker.answering import answer
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.errors import InvalidRequest
from tests.agents.conftest import Results, first_request, note
from tests.support.agent_clis import CLIS, requires_cli
from tests.support.agents import model
from tests.support.arena import PROMPT, Arena
from tests.support.model import CONTENT, MADE
from tests.support.patience import patient
from tests.support.provider import Item, Provider, command, scripted

LIMIT_S: Final = patient(60.0)
TAKEN_S: Final = patient(30.0)  # from a prompt to the decision it leads to
MAX_DIALOGS: Final = 8  # before its first prompt
QUICK: Final = {"codex", "claude"}
# How a dialog is answered so that it goes on, where that is not the choice it begins with.
ANSWERS: Final = {
    ("claude", "trust"): ("down", "enter"),  # begins with: no, exit
    ("claude", "login"): ("up", "enter"),  # begins with: do not use this key
}


def cases() -> list[Any]:
    return [
        pytest.param(
            cli,
            deny,
            id=f"{cli}-{'denied' if deny else 'approved'}",
            marks=[] if cli in QUICK and not deny else pytest.mark.matrix,
        )
        for cli in CLIS
        for deny in (False, True)
    ]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("cli", "deny"), cases())
async def test_a_decision_is_seen_and_can_be_made(
    stage: Arena, cli: str, deny: bool, results: Results
) -> None:
    requires_cli(cli)
    bench = stage.bench()
    began = time.monotonic()
    worker = await stage.run(cli, bench, scenario="ask", prompt=None, tty=True, unattended=False)
    try:
        status = await _decision(stage, cli, worker)
        assert (status.state, status.detail) == (WorkerState.WAITING, "decision"), worker.channel.shown()
        if not deny:
            results.note(cli, "decision", note(status, began, first_request(stage, began)))
        assert not (bench.work / MADE).exists()
        await _until_shown(worker, cli, MADE)
        answered = await answer(worker, CATALOG[cli], option=None, deny=deny, request=None)
        assert (answered["denied"], bool(answered["keys"])) == (deny, True)
        status = await stage.when(worker, lambda now: _waits(now, "prompt"), limit_s=LIMIT_S)
        assert _waits(status, "prompt"), worker.channel.shown()
        made = bench.work / MADE
        assert deny != (made.exists() and made.read_text("utf-8").strip() == CONTENT)
    finally:
        await stage.end(worker)


@pytest.mark.matrix
@pytest.mark.timeout(240)
async def test_files_that_claude_wants_to_write_are_asked_for_and_approved(stage: Arena) -> None:
    requires_cli("claude")
    bench = stage.bench()
    path = bench.work / MADE
    change: dict[str, object] = {"file_path": str(path), "old_string": "first", "new_string": CONTENT}
    made: dict[str, object] = {"file_path": str(path), "content": "first\n"}
    with model([("Write", made), ("Edit", change)]) as (base, _):
        worker = await stage.run("claude", bench, base=base, prompt=None, tty=True, unattended=False)
        try:
            assert _waits(await _decision(stage, "claude", worker), "decision"), worker.channel.shown()
            for asked in ("Do you want to create", "Do you want to make this edit"):
                await _until_shown(worker, "claude", asked)
                await answer(worker, CATALOG["claude"], option=None, deny=False, request=None)
            await stage.when(worker, lambda now: _waits(now, "prompt"), limit_s=LIMIT_S)
        finally:
            await stage.end(worker)
    assert path.read_text("utf-8").strip() == CONTENT


@pytest.mark.timeout(240)
async def test_what_is_approved_has_what_the_run_allows_and_no_more(stage: Arena) -> None:
    """Codex asks before a command leaves its own sandbox. Ours is around that one too."""
    requires_cli("codex")
    bench = stage.bench()
    outside = bench.work.parent / "outside"
    outside.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reach = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo x >> connected'"
        escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
        asked = command("asked", f"{reach}; touch {outside}/no; touch approved", **escalated)
        declined = command("declined", "touch declined", **escalated)
        items = (command("confined", reach), asked, declined)

        async def play(seen: Provider) -> AsyncIterator[list[Item]]:
            """Whatever is not done yet: the program also asks for other things than its next step."""
            while True:
                yield [item for item in items if f'"{item["call_id"]}"' not in seen.prompts[-1]][:1]

        async with scripted(play) as boss:
            base = boss.url.removesuffix("/v1")
            worker = await stage.run(
                "codex", bench, prompt=None, tty=True, unattended=False, base=base, network=True
            )
            try:
                assert _waits(await _decision(stage, "codex", worker), "decision"), worker.channel.shown()
                await _until_shown(worker, "codex", "touch approved")
                assert not (bench.work / "connected").exists()
                await answer(worker, CATALOG["codex"], option=None, deny=False, request=None)
                await _until_shown(worker, "codex", "touch declined")
                await answer(worker, CATALOG["codex"], option=None, deny=True, request=None)
                await stage.when(worker, lambda now: _waits(now, "prompt"), limit_s=LIMIT_S)
            finally:
                await stage.end(worker)
    assert boss.exit_code("confined") != 0
    assert (bench.work / "approved").exists()
    assert (bench.work / "connected").read_text("utf-8") == "x\n"
    assert not (outside / "no").exists()
    assert not (bench.work / "declined").exists()


async def _until_shown(worker: FollowedWorker, cli: str, text: str) -> None:
    """Until it asks about this command, and has drawn what it asks."""
    async with asyncio.timeout(LIMIT_S):
        while not (_waits(worker.judge(), "decision") and _is_drawn(worker, cli, text)):
            await asyncio.sleep(0.05)


def _is_drawn(worker: FollowedWorker, cli: str, text: str) -> bool:
    shown = worker.channel.shown().replace("\r\n", "\n")
    return text in shown and any(dialog.pattern.search(shown) for dialog in CATALOG[cli].dialogs)


async def _decision(stage: Arena, cli: str, worker: FollowedWorker) -> WorkerStatus:
    """Answer what it asks first, give it its prompt, and wait for the decision that follows."""
    for _ in range(MAX_DIALOGS):
        status = await stage.until(worker, ended=False, state="waiting", limit_s=LIMIT_S)
        if status.state is not WorkerState.WAITING or status.detail == "decision":
            return status
        if status.detail == "prompt":
            try:
                outcome = await worker.send(PROMPT)
                if outcome != "submitted":
                    await worker.press("enter")
            except InvalidRequest:  # a dialog came up meanwhile, and nothing was typed into it
                continue
            decided = await stage.when(worker, lambda now: _waits(now, "decision"), limit_s=TAKEN_S)
            if _waits(decided, "decision"):
                return decided
            continue  # typed while it was still starting, and lost
        for key in ANSWERS.get((cli, status.detail), ("enter",)):
            await worker.press(key)
        await stage.when(worker, _other_than(status), limit_s=LIMIT_S)
    raise AssertionError(f"it asks again and again:\n{worker.channel.shown()}")


def _other_than(before: WorkerStatus) -> Callable[[WorkerStatus], bool]:
    return lambda now: now.about != before.about


def _waits(status: WorkerStatus, want: str) -> bool:
    return status.state is WorkerState.WAITING and status.detail == want
