"""A question of a worker answered: by an option of a structured request, or by keys on its terminal.

Hosts that no rule decides about are asked about here as well: the connection waits for the answer.
"""

import asyncio
import secrets
from typing import Final, Literal

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.evidence.evidence import (
    Answered,
    AnswerOption,
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

_ATTACH: Final = "attach to its terminal and answer there, or send the key of a choice"


async def answer(
    worker: FollowedWorker, agent: Agent, *, option: str | None, deny: bool, request: str | None
) -> dict[str, object]:
    """Answer the oldest open question, once and not for ever unless `option` says so; what was answered.

    Raises:
        InvalidRequest: nothing is asked, or something else than `request`, or no answer to it is known.
        UsageError: that option is not offered.
    """
    worker.tick()
    asked = next((one for one in worker.asked() if request in (None, one.request)), None)
    if asked is not None and asked.request in worker.hosts_asked:
        return _about_host(worker, asked, acp.choose(asked, option, deny=deny))
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
    """Put a question about a host to whoever watches this worker; cancelled, it is withdrawn."""
    request = f"network-{secrets.token_hex(4)}"
    target = f"{question.host}:{question.port}"
    options = [AnswerOption("host", "allow_once", f"{target}, while it runs")]
    if question.pattern:
        options.append(AnswerOption("pattern", "allow_always", f"{question.pattern}, while it runs"))
    options.append(AnswerOption("no", "reject_once", "no"))
    text = f"{question.program or 'it'} wants to reach {target}"
    answer: asyncio.Future[bool | Literal["pattern"]] = asyncio.get_running_loop().create_future()
    worker.hosts_asked[request] = answer
    worker.add(Evidence(Source.DENIAL, now(), Wants(Want.NETWORK, text, tuple(options), request), text))
    worker.judge()
    told = "no answer in time"
    try:
        decided = await answer
        told = "allowed" if decided else "refused"
        return decided
    finally:
        del worker.hosts_asked[request]
        settle_host(worker, request, f"{told}: {target}")


def settle_host(worker: FollowedWorker, request: str, seen: str) -> None:
    """Nobody waits for this answer any more."""
    if not worker.done.is_set():
        worker.add(Evidence(Source.DENIAL, now(), Answered(request), seen))
        worker.judge()


def _about_host(worker: FollowedWorker, wants: Wants, chosen: AnswerOption) -> dict[str, object]:
    waiting = worker.hosts_asked[wants.request]
    if waiting.done():
        raise InvalidRequest("somebody else has answered it meanwhile")
    waiting.set_result("pattern" if chosen.id == "pattern" else chosen.id == "host")
    return {
        "question": wants.question,
        "denied": chosen.kind.startswith("reject"),
        "request": wants.request,
        "option": chosen.id,
        "kind": chosen.kind,
    }


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
        raise InvalidRequest("somebody else has answered it meanwhile")
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
        raise InvalidRequest(f"nobody has described the keys of this dialog of {agent.name}", remedy=_ATTACH)
    keys = dialog.deny if deny else dialog.approve
    if dialog.click and not deny:
        await _click(worker, dialog.click)
        keys = (f"click on {dialog.click}",)
    else:
        for key in keys:
            await worker.press(key)
    await worker.settle(f"{'denied' if deny else 'approved'}: {status.about}")
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
