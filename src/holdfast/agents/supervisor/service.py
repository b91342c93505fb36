"""The supervisor process: the methods of its socket, and the report that it builds about a worker."""

import asyncio
import contextlib
import os
import signal
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

from msgspec.structs import asdict

from holdfast import decoding
from holdfast.agents.catalog.answers import find_answer
from holdfast.agents.catalog.output import resolve_announcement
from holdfast.agents.evidence.advice import EquivalenceReport, Surroundings, advise
from holdfast.agents.evidence.evidence import (
    Denied,
    Evidence,
    Exited,
    Failure,
    Foreseen,
    Result,
    Trouble,
    Used,
)
from holdfast.agents.evidence.status import why
from holdfast.agents.supervisor import background, daemons, messages
from holdfast.agents.supervisor.granting import regrant
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker import book
from holdfast.agents.worker.answering import answer, list_hosts
from holdfast.agents.worker.book import KEPT_BYTES, KEPT_S, WorkerRecords
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.reach import describe_network
from holdfast.agents.worker.worker import GRACE_S, FollowedWorker, now
from holdfast.errors import InvalidRequest, NotFound
from holdfast.local import homekey
from holdfast.unixrpc.server import Peer, RpcLimits, RpcServer

MAX_DENIALS: Final = 20  # in one report, which is sent with every change
MAX_TAIL: Final = 1 << 20
MAX_UNSENT: Final = 8 << 20  # bytes that a client may leave unread before it is disconnected
MAX_CLIENTS: Final = 1024  # at once: each client that follows a worker has a connection
MAX_CALLS: Final = 1024  # of one client at once; a dispatcher has one waiting call for each of its workers
IDLE_S: Final = 600.0  # without workers and clients before it exits; the next client starts it again
_LOOK_S: Final = 1.0


def build_report(worker: FollowedWorker) -> messages.WorkerReport:
    record, status, items = worker.record, worker.status, worker.evidence()
    at = now()
    return messages.WorkerReport(
        id=record.id,
        agent=record.agent,
        state=status.state,
        detail=status.detail,
        about=status.about,
        failure=status.failure.value if status.failure else None,
        flags=sorted(status.flags),
        rule=status.rule,
        for_seconds=round(max(0.0, at - status.since), 1),
        evidence=[_shown(item, at) for item in status.evidence],
        contradictions=list(status.contradictions),
        denials=_denials(items),
        usage=_usage(items),
        calls=_calls(worker),
        limit_ends_in_seconds=_limit_s(items, at),
        cwd=record.cwd,
        host=record.host,
        source=record.source,
        place=record.place,
        returned=record.returned,
        unreturned=record.unreturned,
        notes=record.notes,
        argv=record.argv,
        environment=record.environment,
        tty=record.tty,
        acp=record.acp,
        asks=_read_question(worker),
        asked_hosts=list_hosts(worker) if worker.hosts_told else [],
        preflight=record.preflight,
        unwatched=record.unwatched,
        own_sandbox=record.own_sandbox,
        one_sandbox=record.one_sandbox,
        trace=record.trace,
        untraced=record.untraced,
        pane=record.pane,
        pid=record.pid,
        exit_code=_exit_code(items),
        created_at=record.created_at,
        backend=record.backend,
        weakened=record.weakened,
        network=record.network,
        hosts=record.hosts,
        denied_hosts=record.denied_hosts,
        private=record.private,
        command_hosts=record.command_hosts,
        by_name=record.by_name,
        traffic=record.traffic,
        keys=record.keys,
        writable=record.writable,
        after=record.after,
    )


def _read_question(worker: FollowedWorker) -> messages.Question | None:
    for wants in worker.asked()[:1]:
        return messages.Question(request=wants.request, question=wants.question, options=list(wants.options))
    return None


def _shown(item: Evidence, at: float) -> messages.ShownEvidence:
    source, claim = item.source.name.lower(), type(item.claim).__name__
    ago = round(max(0.0, at - item.at), 1)
    return messages.ShownEvidence(source=source, claim=claim, seconds_ago=ago, seen=item.seen)


def _denials(items: list[Evidence]) -> list[Denied]:
    """Return what the sandbox refused, newest first, each path and access once."""
    found: dict[tuple[str, str], Denied] = {}
    for item in reversed(items):
        if isinstance(item.claim, Denied):
            found.setdefault((item.claim.path, item.claim.access), item.claim)
    return list(found.values())[:MAX_DENIALS]


def _surroundings(worker: FollowedWorker) -> Surroundings:
    record, items = worker.record, worker.evidence()
    foreseen = dict.fromkeys(item.claim for item in items if isinstance(item.claim, Foreseen))
    return Surroundings(
        worker=record.id,
        state=record.state if record.relocated else "",
        keeps_state=bool(worker.agent.relocation),
        given=record.given,
        denials=[*_denials(items), *foreseen],
        confined=record.confined,
        traced=record.trace and record.untraced is None,
        notes=record.notes,
    )


def _exit_code(items: list[Evidence]) -> int | None:
    codes = [item.claim.code for item in items if isinstance(item.claim, Exited)]
    return codes[-1] if codes else None


def _calls(worker: FollowedWorker) -> messages.ReportedCalls | None:
    calls = worker.channel.calls()
    return None if calls is None else decoding.convert(calls, messages.ReportedCalls, from_attributes=True)


def _limit_s(items: list[Evidence], at: float) -> float | None:
    """Return how long a limit of the provider still lasts, from the last error that announces its end."""
    for item in reversed(items):
        if isinstance(item.claim, Trouble | Result) and item.claim.announced:
            now_ = datetime.now(UTC)
            end = resolve_announcement(
                item.claim.announced, said=now_ - timedelta(seconds=at - item.at), zones=_zone
            )
            return None if end is None else round(max(0.0, (end - now_).total_seconds()), 1)
    return None


def _zone(name: str) -> tzinfo | None:
    if not name:
        return datetime.now(UTC).astimezone().tzinfo
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None


def _usage(items: list[Evidence]) -> messages.ReportedUsage | None:
    """Return the reported usage, the maximum of all reports: a result may count less than earlier events."""
    found = [item.claim.usage for item in items if isinstance(item.claim, Result | Used) and item.claim.usage]
    if not found:
        return None
    return messages.ReportedUsage(
        input_tokens=max(usage.input_tokens for usage in found),
        output_tokens=max(usage.output_tokens for usage in found),
        cached_tokens=max(usage.cached_tokens for usage in found),
        cost_usd=max((usage.cost_usd for usage in found if usage.cost_usd is not None), default=None),
        turns=max(usage.turns for usage in found) or None,
    )


class SupervisorService:
    """The methods of one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._find = supervisor.find
        home = supervisor.book.home
        self.server = RpcServer(
            RpcLimits(messages.MAX_LINE, MAX_UNSENT, MAX_CLIENTS, MAX_CALLS),
            token=lambda: homekey.access_token(home),
        )
        self.server.answer(messages.RUN, self._run)
        self.server.answer(messages.LIST, self._list)
        self.server.answer(messages.STATUS, self._status)
        self.server.answer(messages.WHY, self._why)
        self.server.answer(messages.EQUIVALENCE, self._equivalence)
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
        self.server.answer(messages.RESULT, self._result)
        self.server.answer(messages.GRANT, self._grant)
        self.server.answer(messages.PRUNE, self._prune)

    async def _run(self, wish: WorkerSpec, _peer: Peer) -> messages.WorkerReport:
        return build_report(await self._supervisor.run(wish))

    async def _list(self, asked: messages.ListParams, _peer: Peer) -> list[messages.WorkerReport]:
        workers = []
        for record in self._supervisor.book:
            if asked.ended or record.phase != "ended":
                with contextlib.suppress(NotFound):  # it could not be taken over; the log says why
                    workers.append(self._find(record.id))
        return [build_report(worker) for worker in workers if asked.ended or not worker.done.is_set()]

    async def _status(self, asked: messages.WorkerParams, _peer: Peer) -> messages.WorkerReport:
        return build_report(self._find(asked.worker))

    async def _why(self, asked: messages.WorkerParams, _peer: Peer) -> messages.ExplainedReport:
        worker = self._find(asked.worker)
        told = [*why(worker.status, now()), *advise(worker.status.state, _surroundings(worker))]
        told += describe_network(worker.record)
        told += [
            f"it asked for {one.path} besides, and was refused: {one.rule}; to allow it: {one.grant}"
            for one in _denials(worker.evidence())
            if one.aside
        ]
        return messages.ExplainedReport(**asdict(build_report(worker)), why=told)

    async def _equivalence(self, asked: messages.WorkerParams, _peer: Peer) -> EquivalenceReport:
        return await self._supervisor.surroundings.report(self._find(asked.worker).record)

    async def _logs(self, asked: messages.LogsParams, _peer: Peer) -> messages.Logs:
        folder = self._supervisor.book.folder(self._find(asked.worker).record.id)
        return messages.Logs(book.tail(folder / "output.log", min(asked.max_bytes, MAX_TAIL)))

    async def _wait(
        self, asked: messages.WorkerParams | messages.StopParams, _peer: Peer
    ) -> messages.WorkerReport:
        worker = self._find(asked.worker)
        await worker.done.wait()
        return build_report(worker)

    async def _stop(self, asked: messages.StopParams, peer: Peer) -> messages.WorkerReport:
        grace_s = GRACE_S if asked.grace_s is None else asked.grace_s
        self._find(asked.worker).stop(Failure.KILLED, grace_s=grace_s)
        return await self._wait(asked, peer)

    async def _changes(self, _read_question: messages.ListParams, peer: Peer) -> list[messages.WorkerReport]:
        def changed(worker: FollowedWorker) -> None:
            peer.notify(messages.CHANGE, build_report(worker))

        peer.farewells.append(self._supervisor.hear(changed))
        return [build_report(worker) for worker in self._supervisor.alive]

    async def _attach(self, asked: messages.WorkerParams, peer: Peer) -> messages.AttachedReport:
        worker = self._find(asked.worker)

        def view(data: bytes) -> None:
            peer.notify(messages.OUTPUT, messages.WorkerOutput(asked.worker, data))

        def changed(other: FollowedWorker) -> None:
            if other is worker:
                peer.notify(messages.CHANGE, build_report(worker))

        shown = worker.channel.shown()
        worker.viewers.add(view)
        peer.farewells += [lambda: worker.viewers.discard(view), self._supervisor.hear(changed)]
        return messages.AttachedReport(**asdict(build_report(worker)), shown=shown)

    async def _input(self, asked: messages.InputParams, _peer: Peer) -> messages.Done:
        await self._find(asked.worker).type(asked.data)
        return messages.Done()

    async def _shown(self, asked: messages.ShownParams, _peer: Peer) -> messages.WorkerReport:
        worker = self._find(asked.worker)
        worker.record.pane = asked.pane
        self._supervisor.book.write(worker.record)
        return build_report(worker)

    async def _send(self, asked: messages.SendParams, _peer: Peer) -> messages.Sent:
        worker = self._find(asked.worker)
        try:
            outcome = await worker.send(asked.text) if asked.text else "pressed"
        except InvalidRequest as exc:
            if worker.record.host is None or worker.agent.ready:
                raise
            raise InvalidRequest(
                f"{exc}: on {worker.record.host} nobody sees whether it reads its terminal",
                remedy=f"Look and type there: holdfast worker attach {worker.record.id}",
            ) from None
        for name in asked.keys:
            await worker.press(name)
        if asked.keys:
            await worker.settle(f"pressed: {' '.join(asked.keys)}")
        return messages.Sent(asked.worker, outcome)

    async def _approve(self, asked: messages.ApproveParams, _peer: Peer) -> messages.GivenAnswer:
        worker = self._find(asked.worker)
        given = await answer(
            worker, worker.agent, option=asked.option, deny=asked.deny, request=asked.request
        )
        return decoding.convert({"id": asked.worker, **given}, messages.GivenAnswer)

    async def _resize(self, asked: messages.SizeParams, _peer: Peer) -> messages.Done:
        await self._find(asked.worker).resize(asked.rows, asked.cols)
        return messages.Done()

    async def _result(self, asked: messages.WorkerParams, _peer: Peer) -> messages.WorkerResult:
        worker = self._find(asked.worker)
        log = self._supervisor.book.folder(worker.record.id) / "output.log"
        return messages.WorkerResult(
            **asdict(build_report(worker)),
            answer="" if worker.record.tty else find_answer(book.tail(log, MAX_TAIL)),
            screen=worker.channel.shown().replace("\r\n", "\n") if worker.record.tty else "",
        )

    async def _prune(self, asked: messages.PruneParams, _peer: Peer) -> list[messages.PrunedWorker]:
        kept_s = KEPT_S if asked.kept_s is None else asked.kept_s
        kept_bytes = KEPT_BYTES if asked.kept_bytes is None else asked.kept_bytes
        gone = await self._supervisor.prune(kept_s, kept_bytes)
        return [messages.PrunedWorker(id=record.id, size=size, pane=record.pane) for record, size in gone]

    async def _grant(self, asked: messages.GrantParams, peer: Peer) -> messages.WorkerReport:
        wish = regrant(self._supervisor.book.wish(asked.worker), asked)
        if not self._find(asked.worker).done.is_set():
            await self._stop(messages.StopParams(asked.worker), peer)
        return build_report(await self._supervisor.run(wish))


async def serve(home: Path, *, idle_s: float = IDLE_S) -> bool:
    """Supervise until there are no workers and clients for `idle_s`; False if another process does."""
    lock = background.take_supervisor_lock(home)
    if lock is None:
        return False
    try:
        with daemons.registered(home, daemons.SUPERVISOR):  # before clients can ask for its version
            homekey.rotate_access(home)  # before clients can connect: none has read the old token to reach us
            await _replace_exec_server(home)
            await _supervise(home, idle_s)
    finally:
        os.close(lock)
    return True


async def _supervise(home: Path, idle_s: float) -> None:
    supervisor = Supervisor(home)
    server = SupervisorService(supervisor).server
    ended = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    try:
        await supervisor.open()
        async with server.listening(background.supervisor_socket(home)):
            needed_at = asyncio.get_running_loop().time()
            while not ended.is_set():
                if supervisor.alive or server.connections:
                    needed_at = asyncio.get_running_loop().time()
                elif asyncio.get_running_loop().time() - needed_at > idle_s:
                    _end_exec_server(home)  # without workers it has nothing to do
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await ended.wait()
    finally:
        await supervisor.aclose()


async def _replace_exec_server(home: Path) -> None:
    """End an exec server that runs other code and owns no worker, so that one with our code replaces it."""
    if any(record.phase != "ended" for record in WorkerRecords(home)):
        return
    found = daemons.find_by_role(home, daemons.OWNER)
    if any(background.difference(one) is not None for one in found):
        _end_exec_server(home)
        await daemons.wait_for_end([one.process for one in found], background.START_S)


def _end_exec_server(home: Path) -> None:
    """End the exec server; the kernel tells which process listens on its socket."""
    if (process := daemons.find_listener(home / "exec.sock")) is not None:
        daemons.send(process, signal.SIGTERM)
