"""What the supervisor answers on its socket, by a table of methods; of a worker, a report."""

from typing import Final

import msgspec
from msgspec.structs import asdict

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import Failure
from holdfast.agents.evidence.why import why
from holdfast.agents.supervisor import messages
from holdfast.agents.supervisor.messages import (
    ApproveParams,
    AttachedReport,
    Done,
    ExplainedReport,
    GivenAnswer,
    InputParams,
    ListParams,
    Logs,
    LogsParams,
    Output,
    ResizeParams,
    SendParams,
    Sent,
    ShownParams,
    StopParams,
    WorkerParams,
    WorkerReport,
)
from holdfast.agents.supervisor.report import report
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker import book
from holdfast.agents.worker.answering import answer
from holdfast.agents.worker.equivalence import EquivalenceReport
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.worker import GRACE_S, Worker, now
from holdfast.unixrpc.server import Limits, Peer, RpcServer

MAX_TAIL: Final = 1 << 20
MAX_UNSENT: Final = 8 << 20  # bytes that a client may leave unread before it is cut off
MAX_CLIENTS: Final = 1024  # at once: everybody who follows a worker has a connection of their own
MAX_CALLS: Final = 1024  # of one client at once; a dispatcher waits for each of its workers by one


class Service:
    """The methods of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._find = supervisor.find
        self.server = RpcServer(Limits(messages.MAX_LINE, MAX_UNSENT, MAX_CLIENTS, MAX_CALLS))
        self.server.answer(messages.RUN, self._run)
        self.server.answer(messages.LIST, self._list)
        self.server.answer(messages.STATUS, self._status)
        self.server.answer(messages.WHY, self._why)
        self.server.answer(messages.equivalence(), self._equivalence)
        self.server.answer(messages.LOGS, self._logs)
        self.server.answer(messages.WAIT, self._wait)
        self.server.answer(messages.STOP, self._stop)
        self.server.answer(messages.CHANGES, self._changes)
        self.server.answer(messages.ATTACH, self._attach)
        self.server.answer(messages.INPUT, self._input)
        self.server.answer(messages.SHOWN, self._shown)
        self.server.answer(messages.SEND, self._send)
        self.server.answer(messages.APPROVE, self._approve)
        self.server.answer(messages.RESIZE, self._resize)

    async def _run(self, wish: WorkerSpec, _peer: Peer) -> WorkerReport:
        return report(await self._supervisor.run(wish))

    async def _list(self, asked: ListParams, _peer: Peer) -> list[WorkerReport]:
        workers = [self._find(record.id) for record in self._supervisor.book]
        return [report(worker) for worker in workers if asked.ended or not worker.done.is_set()]

    async def _status(self, asked: WorkerParams, _peer: Peer) -> WorkerReport:
        return report(self._find(asked.worker))

    async def _why(self, asked: WorkerParams, _peer: Peer) -> ExplainedReport:
        worker = self._find(asked.worker)
        return ExplainedReport(**asdict(report(worker)), why=why(worker.status, now()))

    async def _equivalence(self, asked: WorkerParams, _peer: Peer) -> EquivalenceReport:
        return await self._supervisor.surroundings.report(self._find(asked.worker).record)

    async def _logs(self, asked: LogsParams, _peer: Peer) -> Logs:
        folder = self._supervisor.book.folder(self._find(asked.worker).record.id)
        return Logs(book.tail(folder / "output.log", min(asked.max_bytes, MAX_TAIL)))

    async def _wait(self, asked: WorkerParams | StopParams, _peer: Peer) -> WorkerReport:
        worker = self._find(asked.worker)
        await worker.done.wait()
        return report(worker)

    async def _stop(self, asked: StopParams, peer: Peer) -> WorkerReport:
        grace_s = GRACE_S if asked.grace_s is None else asked.grace_s
        self._find(asked.worker).stop(Failure.KILLED, grace_s=grace_s)
        return await self._wait(asked, peer)

    async def _changes(self, _asked: ListParams, peer: Peer) -> list[WorkerReport]:
        def changed(worker: Worker) -> None:
            peer.notify(messages.CHANGE, report(worker))

        peer.farewells.append(self._supervisor.hear(changed))
        return [report(worker) for worker in self._supervisor.alive]

    async def _attach(self, asked: WorkerParams, peer: Peer) -> AttachedReport:
        worker = self._find(asked.worker)

        def view(data: bytes) -> None:
            peer.notify(messages.OUTPUT, Output(asked.worker, data))

        def changed(other: Worker) -> None:
            if other is worker:
                peer.notify(messages.CHANGE, report(worker))

        shown = worker.channel.shown()
        worker.viewers.add(view)
        peer.farewells += [lambda: worker.viewers.discard(view), self._supervisor.hear(changed)]
        return AttachedReport(**asdict(report(worker)), shown=shown)

    async def _input(self, asked: InputParams, _peer: Peer) -> Done:
        await self._find(asked.worker).type(asked.data)
        return Done()

    async def _shown(self, asked: ShownParams, _peer: Peer) -> WorkerReport:
        worker = self._find(asked.worker)
        worker.record.pane = asked.pane
        self._supervisor.book.write(worker.record)
        return report(worker)

    async def _send(self, asked: SendParams, _peer: Peer) -> Sent:
        worker = self._find(asked.worker)
        outcome = await worker.send(asked.text) if asked.text else "pressed"
        for name in asked.keys:
            await worker.press(name)
        return Sent(asked.worker, outcome)

    async def _approve(self, asked: ApproveParams, _peer: Peer) -> GivenAnswer:
        worker = self._find(asked.worker)
        agent = CATALOG[worker.record.agent]
        given = await answer(worker, agent, option=asked.option, deny=asked.deny, request=asked.request)
        return msgspec.convert({"id": asked.worker, **given}, GivenAnswer)

    async def _resize(self, asked: ResizeParams, _peer: Peer) -> Done:
        await self._find(asked.worker).resize(asked.rows, asked.cols)
        return Done()
