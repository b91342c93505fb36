"""Answers a question of a worker: by an option of a structured request, or by keys on its terminal.

Also asks the user about hosts that no rule covers: the connection waits for the answer.
"""

import asyncio
import secrets
from typing import Final, Literal

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.evidence.evidence import (
    Answered,
    AnswerOption,
    AskedHost,
    Evidence,
    Failure,
    Source,
    Trouble,
    Want,
    Wants,
    WorkerState,
)
from holdfast.agents.terminal.keys import encode_click
from holdfast.agents.worker import acp
from holdfast.agents.worker.worker import FollowedWorker, now
from holdfast.errors import InvalidRequest, UsageError
from holdfast.wire.network import PolicyQuestion

MAX_TOLD: Final = 32  # questions about hosts in one report, which is sent with every change: open, answered
# Outcomes of a question about a host.
ALLOWED: Final = "allowed"
REFUSED: Final = "refused"
UNANSWERED: Final = "no answer in time"
WITHDRAWN: Final = "withdrawn"  # the waiting program is gone, or its link was lost
_ALMOST: Final = 0.9  # of the time for an answer: the side that ends it began to count a moment before us
_ATTACH: Final = "attach to its terminal and answer there, or send the key of a choice"


async def answer(
    worker: FollowedWorker, agent: Agent, *, option: str | None, deny: bool, request: str | None
) -> dict[str, object]:
    """Answer the oldest open question, for this time only unless `option` says more; return the answer.

    Raises:
        InvalidRequest: there is no open question, or not `request`, or no known way to answer it.
        UsageError: that option is not offered.
    """
    worker.tick()
    asked = next((one for one in worker.asked() if request in (None, one.request)), None)
    if asked is not None and asked.request in worker.hosts_asked:
        return _about_host(worker, asked, acp.choose(asked, option, deny=deny))
    if asked is None and request in worker.hosts_told:
        was = worker.hosts_told[request]
        raise InvalidRequest(f"nobody waits for an answer about {was.target} any more: {was.told}")
    if worker.record.acp:
        return await _by_option(worker, option=option, deny=deny, request=request)
    if not worker.record.tty:
        raise InvalidRequest(
            f"{worker.record.id} cannot be answered", remedy="start it with --acp --ask, or with --tty --ask"
        )
    if option is not None or request is not None:
        raise UsageError("a dialog on a terminal has keys, not options", remedy=_ATTACH)
    return await _by_keys(worker, agent, deny=deny)


async def ask_about_host(worker: FollowedWorker, question: PolicyQuestion) -> bool | Literal["pattern"]:
    """Ask the clients that watch this worker about a host. Cancelling withdraws the question."""
    request, began = f"network-{secrets.token_hex(4)}", now()
    about = AskedHost(
        request=request,
        host=question.host,
        port=question.port,
        program=question.program or "",
        pattern=question.pattern or "",
    )
    options = [AnswerOption("host", "allow_once", f"{about.target}, while it runs")]
    if about.pattern:
        options.append(AnswerOption("pattern", "allow_always", f"{about.pattern}, while it runs"))
    options.append(AnswerOption("no", "reject_once", "no"))
    text = f"{about.program or 'it'} wants to reach {about.target}"
    answer: asyncio.Future[bool | Literal["pattern"]] = asyncio.get_running_loop().create_future()
    worker.hosts_asked[request] = answer
    _remember(worker, about)
    worker.add(Evidence(Source.DENIAL, now(), Wants(Want.NETWORK, text, tuple(options), request), text))
    worker.judge()
    told = WITHDRAWN
    try:
        decided = await answer
        told = ALLOWED if decided else REFUSED
        return decided
    finally:
        if told == WITHDRAWN and now() - began >= _ALMOST * worker.record.ask_s:
            told = UNANSWERED
        del worker.hosts_asked[request]
        _remember(worker, msgspec.structs.replace(about, told=told))
        settle_host(worker, request, f"{told}: {about.target}")


def list_hosts(worker: FollowedWorker) -> list[AskedHost]:
    """Return the open questions about hosts, oldest first and bounded, and the newest answered ones."""
    waiting = [one for one in worker.hosts_told.values() if not one.told]
    return waiting[:MAX_TOLD] + [one for one in worker.hosts_told.values() if one.told]


def _remember(worker: FollowedWorker, about: AskedHost) -> None:
    """Keep the question, and the newest answered ones: a client that relayed them may check late."""
    worker.hosts_told[about.request] = about
    answered = [one.request for one in worker.hosts_told.values() if one.told]
    for request in answered[: max(0, len(answered) - MAX_TOLD)]:
        del worker.hosts_told[request]


def settle_host(worker: FollowedWorker, request: str, seen: str) -> None:
    """Note that no connection waits for this answer any more."""
    if not worker.done.is_set():
        worker.add(Evidence(Source.DENIAL, now(), Answered(request), seen))
        worker.judge()


def _about_host(worker: FollowedWorker, wants: Wants, chosen: AnswerOption) -> dict[str, object]:
    waiting = worker.hosts_asked[wants.request]
    if waiting.done():
        raise InvalidRequest("it has been answered meanwhile")
    waiting.set_result("pattern" if chosen.id == "pattern" else chosen.id == "host")
    if chosen.id == "pattern":
        _allow_beside(worker, worker.hosts_told[wants.request].pattern)
    return {
        "question": wants.question,
        "denied": chosen.kind.startswith("reject"),
        "request": wants.request,
        "option": chosen.id,
        "kind": chosen.kind,
    }


def _allow_beside(worker: FollowedWorker, pattern: str) -> None:
    """Settle the other open questions with this pattern; the server lets those connections through."""
    for request, waiting in worker.hosts_asked.items():
        if worker.hosts_told[request].pattern == pattern and not waiting.done():
            waiting.set_result("pattern")


async def _by_option(
    worker: FollowedWorker, *, option: str | None, deny: bool, request: str | None
) -> dict[str, object]:
    asked = worker.asked()
    wants = next((one for one in asked if request in (None, one.request)), None)
    if wants is None or worker.process is None:
        raise InvalidRequest(
            f"{worker.record.id} does not ask that" if asked else _describe_no_question(worker)
        )
    chosen = acp.choose(wants, option, deny=deny)
    await worker.process.write(acp.answer(wants, chosen), write_id=f"answer-{wants.request}")
    if wants not in worker.asked():
        raise InvalidRequest("it has been answered meanwhile")
    worker.add(Evidence(Source.PROTOCOL, now(), Answered(wants.request), f"answered: {chosen.id}"))
    denied = chosen.kind.startswith("reject")
    if denied:
        seen = f"a person denied: {wants.question}"
        worker.add(Evidence(Source.PROTOCOL, now(), Trouble(Failure.PERMISSION), seen))
    worker.judge()
    return {
        "question": wants.question,
        "denied": denied,
        "request": wants.request,
        "option": chosen.id,
        "kind": chosen.kind,
    }


async def _by_keys(worker: FollowedWorker, agent: Agent, *, deny: bool) -> dict[str, object]:
    status = worker.status
    shown = worker.channel.shown().replace("\r\n", "\n")
    dialog = next((one for one in agent.dialogs if one.pattern.search(shown)), None)
    if status.state is not WorkerState.WAITING or (dialog is None and status.detail != Want.DECISION):
        raise InvalidRequest(_describe_no_question(worker))
    if dialog is None:
        raise InvalidRequest(
            f"the keys that answer this dialog of {agent.name} are not known", remedy=_ATTACH
        )
    keys = dialog.deny if deny else dialog.approve
    if dialog.click and not deny:
        await _click(worker, dialog.click)
        keys = (f"click on {dialog.click}",)
    else:
        for key in keys:
            await worker.press(key)
    said = f"{'denied' if deny else 'approved'}: {status.about}"
    await worker.settle(said, dialog.pattern, status.about)
    return {"question": status.about, "denied": deny, "keys": list(keys)}


async def _click(worker: FollowedWorker, words: str) -> None:
    await worker.wait_until_drawn()
    seen = worker.channel.input(now())
    data = encode_click(words, worker.channel.shown().split("\r\n")) if seen and seen.clicks else b""
    if not data:
        raise InvalidRequest(f"{worker.record.id} shows nothing to click on: {words}", remedy=_ATTACH)
    await worker.type(data)


def _describe_no_question(worker: FollowedWorker) -> str:
    status = worker.status
    return f"{worker.record.id} asks for no decision: it is {status.state} {status.detail}".rstrip()
