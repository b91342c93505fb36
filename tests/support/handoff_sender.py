"""Workers that do not trust their luck: `python -m tests.support.handoff_sender PLAN`.

The plan is a list of `Sending`. Each is sent until somebody has it, and then it is said: "RUN answered",
"RUN accepted" by the outbox, or "RUN refused KIND". By tool it is sent as the MCP server sends it.
"""

import sys
import time
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import HoldfastError, Unreachable
from holdfast.handoff.envelope import Grant, HandoffAnswer, refusal
from holdfast.handoff.sender import ACCEPTED, Channel, Sender
from holdfast.mcp import reports
from holdfast.mcp.reports import Reporting
from tests.support.patience import patient

PATIENCE_S = patient(60.0)  # for a service that is killed again and again to answer one envelope


class Sending(msgspec.Struct):
    grant: Grant
    channel: Channel | Literal["mcp"]
    wait_s: float


def by_tool(grant: Grant, said: dict[str, str]) -> HandoffAnswer:
    try:
        answered = Reporting(Sender(grant)).call("kanban_complete", said)
        return HandoffAnswer(id="", result=msgspec.json.decode(answered.text))
    except HoldfastError as exc:
        return refusal("", exc)


def sent(sending: Sending) -> HandoffAnswer:
    said = {"summary": f"work of {sending.grant.run}"}
    if sending.channel == "mcp":
        return by_tool(sending.grant, said)
    letter = reports.build_letter("kanban_complete", said, sending.grant)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Sender(sending.grant).send(
                letter.verb,
                letter.args,
                id=letter.id,
                channel=sending.channel,
                wait_s=sending.wait_s,
            )
        except Unreachable:  # only where it was to be the socket and nothing else
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def main(plan: str) -> None:
    for sending in msgspec.json.decode(Path(plan).read_bytes(), type=list[Sending]):
        answer = sent(sending)
        if answer.error is not None:
            said = f"refused {answer.error.kind}"
        else:
            said = "accepted" if ACCEPTED in (answer.result or {}) else "answered"
        sys.stdout.write(f"{sending.grant.run} {said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
