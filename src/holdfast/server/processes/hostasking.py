"""Questions about hosts that a command of the wire reaches by name: put to its client, as a proxy's are."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.egress.asking.asker import Ask
from holdfast.egress.asking.questions import Answer, HostQuestion
from holdfast.wire import network as wire
from holdfast.wire.rpc import JsonValue

# The client's answer to a request, within so many seconds; None: there is none.
AskClient: TypeAlias = Callable[[str, msgspec.Struct, float], Awaitable[JsonValue]]
_PROTOCOLS: Final[dict[int, wire.AskedProtocol]] = {80: "http", 443: "https_connect"}


def make_asker(ask: AskClient, process_id: str) -> Ask:
    """Asks the client of this process."""

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
    """What the client decided; anything but an answer is none."""
    try:
        decision = decoding.convert(answer, wire.PolicyReply).decision
    except msgspec.ValidationError:
        return Answer.NOBODY
    if not isinstance(decision, wire.AllowDecision):
        return Answer.NO
    return Answer.PATTERN if decision.scope == "pattern" else Answer.HOST
