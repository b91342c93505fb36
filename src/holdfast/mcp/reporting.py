"""A worker's tools: they send envelopes."""

import asyncio
import concurrent.futures
from collections.abc import Mapping
from typing import Any, Final

from holdfast.handoff import envelope
from holdfast.handoff.sender import Sender
from holdfast.mcp import reports, toolbox

MAX_AT_ONCE: Final = 4  # reports on their way at once: a model that calls in parallel, not one in a loop


class Reporting:
    """The tools of a worker."""

    tools = tuple(report.tool for report in reports.REPORTS)

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        grant = sender.grant
        self.instructions = reports.INSTRUCTIONS.format(task=grant.task, board=grant.board)
        self._threads = concurrent.futures.ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="report")

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Say it for the run, and answer what the board says."""
        letter = reports.letter(name, given, self._sender.grant)
        said = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: self._sender.send(letter.verb, letter.args, id=letter.id)
        )
        heard = reports.heard(said.messages)
        if said.error is not None:
            exc = envelope.error_of(said.error)
            for message in heard:
                exc.add_note(message)
            raise exc
        told = reports.told(name, said.result or {}, self._sender.grant)
        return toolbox.answer(told | ({"messages": heard} if heard else {}), letter.ignored)
