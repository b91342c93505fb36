"""What the supervisor answers on its socket, by a table of methods; of a worker, a report."""

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import Failure
from holdfast.agents.evidence.why import why
from holdfast.agents.supervisor.control import Method, Peer
from holdfast.agents.supervisor.report import SCHEMA_VERSION, report
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker import book
from holdfast.agents.worker.answering import answer
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.worker import GRACE_S, Worker, now

MAX_TAIL: Final = 1 << 20


class Listing(msgspec.Struct):
    ended: bool = False


class Named(msgspec.Struct):
    worker: str


class Tail(msgspec.Struct):
    worker: str
    max_bytes: int = 64 * 1024


class Stop(msgspec.Struct):
    worker: str
    grace_s: float = GRACE_S


class Typed(msgspec.Struct):
    worker: str
    data: bytes


class Sent(msgspec.Struct):
    worker: str
    text: str = ""
    keys: list[str] = []


class Answer(msgspec.Struct):
    worker: str
    option: str | None = None
    deny: bool = False
    request: str | None = None  # the question that is meant, if another one may be open by now


class Pane(msgspec.Struct):
    worker: str
    pane: str


class Size(msgspec.Struct):
    worker: str
    rows: int
    cols: int


class Service:
    """The methods of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.methods: Mapping[str, Method] = {
            "run": Method(WorkerSpec, self._run),
            "list": Method(Listing, self._list),
            "status": Method(Named, self._status),
            "why": Method(Named, self._why),
            "equivalence": Method(Named, self._equivalence),
            "logs": Method(Tail, self._logs),
            "wait": Method(Named, self._wait),
            "stop": Method(Stop, self._stop),
            "changes": Method(Listing, self._changes),
            "attach": Method(Named, self._attach),
            "input": Method(Typed, self._input),
            "shown": Method(Pane, self._shown),
            "send": Method(Sent, self._send),
            "approve": Method(Answer, self._approve),
            "resize": Method(Size, self._resize),
        }

    def _find(self, asked: Named | Tail | Stop | Typed | Sent | Answer | Pane | Size) -> Worker:
        return self._supervisor.find(asked.worker)

    async def _run(self, wish: WorkerSpec, _peer: Peer) -> object:
        return report(await self._supervisor.run(wish))

    async def _list(self, asked: Listing, _peer: Peer) -> object:
        workers = [self._supervisor.find(record.id) for record in self._supervisor.book]
        return [report(worker) for worker in workers if asked.ended or not worker.done.is_set()]

    async def _status(self, asked: Named, _peer: Peer) -> object:
        return report(self._find(asked))

    async def _why(self, asked: Named, _peer: Peer) -> object:
        worker = self._find(asked)
        return {**report(worker), "why": why(worker.status, now())}

    async def _equivalence(self, asked: Named, _peer: Peer) -> object:
        return await self._supervisor.surroundings.report(self._find(asked).record)

    async def _logs(self, asked: Tail, _peer: Peer) -> object:
        folder = self._supervisor.book.folder(self._find(asked).record.id)
        return {"data": book.tail(folder / "output.log", min(asked.max_bytes, MAX_TAIL))}

    async def _wait(self, asked: Named, _peer: Peer) -> object:
        worker = self._find(asked)
        await worker.done.wait()
        return report(worker)

    async def _stop(self, asked: Stop, peer: Peer) -> object:
        self._find(asked).stop(Failure.KILLED, grace_s=asked.grace_s)
        return await self._wait(Named(asked.worker), peer)

    async def _changes(self, _asked: Listing, peer: Peer) -> object:
        peer.farewells.append(self._supervisor.hear(lambda worker: peer.note("change", report(worker))))
        return [report(worker) for worker in self._supervisor.alive]

    async def _attach(self, asked: Named, peer: Peer) -> object:
        worker = self._find(asked)

        def view(data: bytes) -> None:
            peer.note("output", {"worker": asked.worker, "data": data})

        def changed(other: Worker) -> None:
            if other is worker:
                peer.note("change", report(worker))

        shown = worker.channel.shown()
        worker.viewers.add(view)
        peer.farewells += [lambda: worker.viewers.discard(view), self._supervisor.hear(changed)]
        return {**report(worker), "shown": shown}

    async def _input(self, asked: Typed, _peer: Peer) -> object:
        await self._find(asked).type(asked.data)
        return {}

    async def _shown(self, asked: Pane, _peer: Peer) -> object:
        worker = self._find(asked)
        worker.record.pane = asked.pane
        self._supervisor.book.write(worker.record)
        return report(worker)

    async def _send(self, asked: Sent, _peer: Peer) -> object:
        worker = self._find(asked)
        outcome = await worker.send(asked.text) if asked.text else "pressed"
        for name in asked.keys:
            await worker.press(name)
        return {"worker": asked.worker, "outcome": outcome}

    async def _approve(self, asked: Answer, _peer: Peer) -> object:
        worker = self._find(asked)
        agent = CATALOG[worker.record.agent]
        given = await answer(worker, agent, option=asked.option, deny=asked.deny, request=asked.request)
        return {"schemaVersion": SCHEMA_VERSION, "id": asked.worker, **given}

    async def _resize(self, asked: Size, _peer: Peer) -> object:
        await self._find(asked).resize(asked.rows, asked.cols)
        return {}
