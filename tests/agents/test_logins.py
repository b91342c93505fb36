"""An agent CLI that is installed, configured and logged in works as a worker at the first try.

The CLIs, the sandbox and their files are real; only the model and the token endpoint are scripted.
"""

import asyncio
import json
from typing import Any, Final

import pytest

from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.board.rules.transitions import TaskStatus
from holdfast.sandbox.policy.credentials import credentials
from tests.support.agent_clis import requires_cli
from tests.support.arena import PROMPT, Arena, Bench
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.logins import HOMES, chatgpt, set_up, token_endpoint
from tests.support.model import MADE, digest, scripted_model
from tests.support.patience import patient
from tests.support.rows import every_row
from tests.support.tiers import DEEP

__all__ = ["home_fixture", "yard_fixture"]

LIMIT_S: Final = patient(60)
pytestmark = pytest.mark.timeout(patient(180))


async def start(stage: Arena, cli: str, bench: Bench, **variables: str) -> FollowedWorker:
    """With nothing of its user's but HOME, and every credential of that home hidden, as on the board."""
    env: dict[str, str] = {"PATH": stage.path, "HOME": str(bench.home), "LANG": "C.UTF-8", **variables}
    more: dict[str, Any] = {"secret": credentials(str(bench.home), granted=()), "private_tmp": True}
    wish = WorkerSpec(agent=cli, cwd=str(bench.work), env=env, prompt=PROMPT, **more)
    return await stage.supervisor.run(wish)


async def finish(stage: Arena, worker: FollowedWorker) -> None:
    status = await stage.until(worker, ended=True, limit_s=LIMIT_S)
    assert (status.state, status.failure) == ("completed", None), (status.about, worker.record.given)


@every_row("name", [name for name in HOMES if name != "opencode"], ids=str)  # the seed story has that one
async def test_a_cli_that_is_logged_in_works_at_the_first_try(stage: Arena, name: str) -> None:
    cli = HOMES[name].cli
    requires_cli(cli)
    bench = stage.bench()
    key = set_up(name, bench.home, stage.model.url("hello"))
    before = {path: (bench.home / path).read_bytes() for path in HOMES[name].files}
    asked = len(stage.model.requests)
    worker = await start(stage, cli, bench)
    await finish(stage, worker)
    sent = {request.credential for request in stage.model.requests[asked:]}
    assert sent == {digest(key)}, "its own key, and no other"
    assert {path: (bench.home / path).read_bytes() for path in before} == before
    assert not (bench.work / "notified").exists(), "what its settings would start does not enter"
    state = stage.supervisor.book.folder(worker.record.id) / "state"
    left = {path.name for path in state.rglob("*") if path.is_file() and key.encode() in path.read_bytes()}
    kept = {name for name in left if not name.startswith(".claude.json.backup")}  # claude's own doing
    assert kept == set(), "no login stays behind when the worker is gone"


async def test_a_login_that_expired_is_renewed_by_one_of_two_workers_and_nobody_is_logged_out(
    stage: Arena,
) -> None:
    requires_cli("codex")
    bench = stage.bench()
    set_up("codex-chatgpt", bench.home, stage.model.url("hello"))
    login = bench.home / ".codex" / "auth.json"
    login.write_text(json.dumps(chatgpt(-60)))
    asked = len(stage.model.requests)
    async with token_endpoint() as endpoint:
        override = {"CODEX_REFRESH_TOKEN_URL_OVERRIDE": endpoint.url}
        workers = await asyncio.gather(*(start(stage, "codex", bench, **override) for _ in range(2)))
        for worker in workers:
            await finish(stage, worker)
        assert (len(endpoint.spent), endpoint.refused) == (1, [])
        after = json.loads(login.read_bytes())
        assert after["tokens"]["refresh_token"] == endpoint.valid, "what its user has is what is valid"
        assert after["auth_mode"] == "chatgpt"
        assert login.stat().st_mode & 0o777 == 0o600
    sent = {request.credential for request in stage.model.requests[asked:]}
    assert sent == {digest(after["tokens"]["access_token"])}
    told = sorted(
        line.rpartition("; ")[2] for worker in workers for line in worker.record.given if login.name in line
    )
    assert told == ["it is lent, another one renews it", "this worker renews it"]


async def test_a_worker_that_renews_nothing_leaves_the_login_as_it_is(
    stage: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    requires_cli("codex")
    bench = stage.bench()
    set_up("codex-chatgpt", bench.home, stage.model.url("hello"))
    login = bench.home / ".codex" / "auth.json"
    before = login.read_bytes(), login.stat().st_ino
    worker = await start(stage, "codex", bench)
    said = [str(getattr(record, "reason", "")) for record in caplog.records]
    assert not any("its own sandbox is off" in line for line in said), "it keeps one"
    await finish(stage, worker)
    assert (login.read_bytes(), login.stat().st_ino) == before


@pytest.mark.parametrize("name", ["codex-chatgpt", pytest.param("opencode", marks=DEEP)])
async def test_one_that_is_logged_in_does_its_task_on_the_board(yard: Yard, name: str) -> None:
    cli = HOMES[name].cli
    (yard.bin / cli).symlink_to(requires_cli(cli))
    yard.profile("agent", agent=cli, success="exit")
    async with scripted_model() as model:
        key = set_up(name, yard.user, model.url("write"))
        task = yard.create("do what the script says", assignee="agent")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        assert {request.credential for request in model.requests} == {digest(key)}
    assert yard.store.task(task.id).status is TaskStatus.DONE, yard.store.show(task.id)
    [run] = yard.store.runs(task.id)
    assert MADE.encode() in yard.store.file(task.id, run.id, "diff.patch")
