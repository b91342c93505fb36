"""Questions about hosts that a command reaches by name. They are put to its client, like those of a proxy."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.egress.asking.asker import Ask
from holdfast.egress.asking.questions import Answer, HostQuestion
from holdfast.wire import network as wire
from holdfast.wire.rpc import JsonValue

# Sends a request to the client and returns its answer within so many seconds; None: there is none.
AskClient: TypeAlias = Callable[[str, msgspec.Struct, float], Awaitable[JsonValue]]
_PROTOCOLS: Final[dict[int, wire.AskedProtocol]] = {80: "http", 443: "https_connect"}


def make_asker(ask: AskClient, process_id: str) -> Ask:
    """Create a function that asks the client of this process."""

    async def put(question: HostQuestion) -> Answer:
        told = wire.PolicyQuestion(
            _PROTOCOLS.get(question.port, "socks5_tcp"),
            question.host,
            question.port,
            msgspec.UNSET if question.pattern is None else question.pattern,
            msgspec.UNSET if question.program is None else question.program,
        )
        request = wire.PolicyRequest(process_id, told)
        return read_answer(await ask("network/policyRequest", request, question.limit_s + wire.GRACE_S))

    return put


def read_answer(answer: JsonValue) -> Answer:
    """Parse the client's decision; an invalid answer counts as no answer."""
    try:
        decision = decoding.convert(answer, wire.PolicyReply).decision
    except msgspec.ValidationError:
        return Answer.NOBODY
    if not isinstance(decision, wire.AllowDecision):
        return Answer.NO
    return Answer.PATTERN if decision.scope == "pattern" else Answer.HOST
