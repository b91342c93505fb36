"""The real Codex as a worker of the board, with a scripted model: it reports, or is asked for it again."""

import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.verbs.reviews import Remark, Review
from tests.support.codex import requires_codex
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.provider import Item, Provider, command, scripted, turns
from tests.support.tiers import DEEP
from tests.support.webhosts import web_hosts

__all__ = ["home_fixture", "yard_fixture"]

YIELD_MS: Final = 30_000  # for a command that starts an interpreter on a busy machine
NOTHING: Final[list[Item]] = []  # the model has nothing more to do

pytestmark = pytest.mark.timeout(180)

MADE: Final = command("made", "echo it > made.txt")


def report(summary: str) -> Item:
    return command(
        "report",
        f"{shlex.quote(sys.executable)} -m holdfast handoff complete '{summary}'",
        yield_time_ms=YIELD_MS,
    )


def hire(yard: Yard, model: Provider) -> None:
    (yard.bin / "codex").symlink_to(requires_codex())
    yard.profile(
        "codex",
        agent="codex",
        model="gpt-5.5",
        provider=model.url.removesuffix("/v1"),
        key_env="HOME",  # any value will do: the model does not ask
    )


def saying(verb: str) -> Item:
    words = f"{shlex.quote(sys.executable)} -m holdfast handoff {verb} said"
    return command(f"say {verb}", words, yield_time_ms=YIELD_MS)


async def mending(model: Provider) -> AsyncIterator[list[Item]]:
    """Does what is still to be done in its session: the work, what a person wants, what the checks want."""
    work = [MADE, saying("review")]
    person = [command("wrong", "echo wrong > check.txt"), saying("complete")]
    checks = [command("right", "echo right > check.txt"), saying("complete") | {"call_id": "say again"}]
    while True:
        asked = [("checks asked for", checks), ("anna asked for", person), ("", work)]
        todo = next(items for words, items in asked if words in model.prompts[-1])
        yield [item for item in todo if f'"{item["call_id"]}"' not in model.prompts[-1]][:1]


async def test_codex_does_its_task_and_reports(yard: Yard) -> None:
    async with scripted(turns([MADE], [report("made it")])) as model:
        hire(yard, model)
        task = yard.create("make made.txt", assignee="codex")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (TaskStatus.DONE, "made it"), model.outputs
    [run] = yard.store.runs(task.id)
    assert b"+it\n" in yard.store.file(task.id, run.id, "diff.patch")
    assert run.session


async def test_codex_works_with_nothing_but_the_host_of_its_provider(yard: Yard) -> None:
    """By its name, which nobody else knows; its commands reach nobody, and what went out is on the board."""
    reach = "exec 3<>/dev/tcp/model.test/{port} || exec 3<>/dev/tcp/127.0.0.1/{port}"

    async def play(model: Provider) -> AsyncIterator[list[Item]]:
        port = urlsplit(model.url).port
        yield [command("tried", f"bash -c '{reach.format(port=port)}'"), MADE]
        yield [report("made it")]

    async with scripted(play) as model:
        port = urlsplit(model.url).port
        (yard.bin / "codex").symlink_to(requires_codex())
        yard.profile(
            "codex",
            agent="codex",
            model="gpt-5.5",
            provider=f"http://model.test:{port}",
            key_env="HOME",
            hosts={"addresses": {"model.test": "127.0.0.1"}},
        )
        task = yard.create("make made.txt", assignee="codex")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (TaskStatus.DONE, "made it"), model.outputs
    assert model.exit_code("tried") != 0
    told: Any = yard.told("run_network")[task.id]
    assert (told["whole"], told["hosts"], told["counted"]) == (False, [f"model.test:{port}"], True)
    [row] = told["sent"]
    assert (row["host"], row["port"]) == ("model.test", port)
    assert min(row["connections"], row["sent"], row["received"]) > 0


@DEEP
async def test_a_command_of_codex_waits_until_the_board_has_answered(yard: Yard, tmp_path: Path) -> None:
    """Codex reaches its model meanwhile. What it wants to reach for itself besides is asked about too."""
    with web_hosts(tmp_path) as servers:
        port = servers.ports["plain"]
        fetch = "curl -sS --fail http://{}.test:{}/{}"
        fetched = command("fetched", fetch.format("one", port, "a"), yield_time_ms=YIELD_MS)
        refused = command("refused", fetch.format("two", port, "b"), yield_time_ms=YIELD_MS)
        async with scripted(turns([fetched], [refused], [MADE], [report("made it")])) as model:
            (yard.bin / "codex").symlink_to(requires_codex())
            yard.profile(
                "codex",
                agent="codex",
                model="gpt-5.5",
                provider=model.url.removesuffix("/v1"),
                key_env="HOME",
                ask_network=True,
                hosts={
                    f"known.test:{port}": "allow",
                    "private": True,
                    "addresses": {"one.test": "127.0.0.1", "two.test": "127.0.0.1"},
                },
            )
            task = yard.create("make made.txt", assignee="codex")
            asked: dict[str, str] = {}
            async with yard.dispatching():
                while yard.store.task(task.id).status is not TaskStatus.DONE:
                    await yard.when(lambda: yard.store.asking_tasks("b") or yard.store.task(task.id).ended_ms)
                    for one in yard.store.asking_tasks("b").get(task.id, ()):
                        asked[one.host] = one.program.rpartition("/")[2]
                        said = "yes" if one.host == f"one.test:{port}" else "no"
                        yard.store.answer_host(task.id, said, one.host, who="ada")
        arrived = [seen.data.split(b" ")[1] for seen in servers.seen if seen.data]
    assert (yard.store.task(task.id).result, arrived) == ("made it", [b"/a"]), model.outputs
    assert (model.exit_code("fetched"), model.exit_code("refused") != 0) == (0, True), model.outputs
    assert {host for host, program in asked.items() if program == "curl"} == {
        f"one.test:{port}",
        f"two.test:{port}",
    }
    events = [event for event in yard.store.show(task.id).events if event.kind == "host_settled"]
    outcomes = {event.payload["host"]: event.payload["outcome"] for event in events}
    assert outcomes == {host: "allowed" if host.startswith("one.") else "refused" for host in asked}


async def test_codex_is_asked_for_its_report_in_the_session_of_its_work(yard: Yard) -> None:
    async with scripted(turns([MADE], NOTHING, [report("as asked")])) as model:
        hire(yard, model)
        task = yard.create("make made.txt", assignee="codex")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        assert yard.store.task(task.id).status is TaskStatus.HANDOFF_FAILED
        asked = len(model.prompts)
        yard.store.move(task.id, Move.RETRY, report_only=True)
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (TaskStatus.DONE, "as asked"), model.outputs
    assert "Do not do the work again" in model.prompts[asked]
    assert "echo it > made.txt" in model.prompts[asked], "what was done before is part of the session"
    first, second = yard.store.runs(task.id)
    assert first.session == second.session
    assert first.tokens == second.tokens > 0, "what the session used before is not counted again"


async def test_codex_goes_on_in_its_session_after_a_review_and_after_a_failed_check(yard: Yard) -> None:
    asked = []
    async with scripted(mending) as model:
        hire(yard, model)
        checks = ("test ! -e check.txt || grep right check.txt",)
        task = yard.create("make made.txt", assignee="codex", checks=checks)
        for status in (TaskStatus.REVIEW, TaskStatus.READY, TaskStatus.DONE):
            asked.append(len(model.prompts))
            async with yard.dispatching(once=True) as serving:
                await yard.over(serving)
            assert yard.store.task(task.id).status is status, model.outputs
            if status is TaskStatus.REVIEW:
                yard.store.review(task.id, Review(remarks=(Remark("made.txt", 1, "say more"),)), who="anna")
    second, third = (model.prompts[number] for number in asked[1:])
    assert json.dumps("## made.txt:1\n    +it\n> say more").strip('"') in second
    assert "echo it > made.txt" in second, "what was done before is part of the session"
    assert "Changes that checks asked for" in third
    assert "echo wrong > check.txt" in third
    runs = yard.store.runs(task.id)
    assert len({run.session for run in runs}) == 1
    assert [run.metadata.get("resumes") for run in runs] == [None, runs[0].id, runs[0].id]
