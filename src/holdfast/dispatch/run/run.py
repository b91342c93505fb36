"""One run from its claim to its end: the work of each step of `runsteps`.

If this process is killed, its successor begins again from the first step. The mark HOME/board/runs/RUN means
that the run still has to be finished; it is written before the worker is started, and removed last.
"""

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.agents.changes import changes, manifest
from holdfast.agents.changes.git import find_repository
from holdfast.agents.changes.manifest import Changes, Manifest
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import MAX_FILE, Detail, JsonObject, Run, TaskMessage, WorkspaceKind
from holdfast.board.store import Store
from holdfast.board.verbs import runs
from holdfast.board.verbs.reviews import RequestedChanges
from holdfast.dispatch.context import FAR_COMMAND, DispatchContext, worker_of
from holdfast.dispatch.rules import fleet, profiles, prompts, runsteps
from holdfast.dispatch.rules.profiles import BRIEF, WorkerProfile
from holdfast.dispatch.rules.runsteps import (
    Complete,
    Fail,
    Outcome,
    RunEvent,
    RunStep,
    Stop,
    WorkerEnd,
    WorkFound,
)
from holdfast.dispatch.run import scripts, workspace
from holdfast.dispatch.run.budgetmeter import BudgetMeter
from holdfast.dispatch.run.elsewhere import ReachNote, bring_home, start_when_reached
from holdfast.dispatch.run.hostasking import HostDesk
from holdfast.dispatch.run.workspace import Workspace
from holdfast.errors import (
    Conflict,
    NotFound,
    OperationFailed,
    StaleRun,
    StartupError,
    UsageError,
    is_storage_fault,
)
from holdfast.handoff import envelope, outbox
from holdfast.handoff.broker import Broker, listen
from holdfast.handoff.envelope import VERBS, Envelope, HandoffAnswer
from holdfast.local import rundirs
from holdfast.local.atomicfile import replace_file
from holdfast.local.shown import show_text

log = logging.getLogger(__name__)

GRACE_S: Final = 2.0  # between asking the worker to end and killing it
MAX_OUTPUT: Final = 1 << 20  # bytes of its output that are kept, from the end
MAX_SUMMARY: Final = 2_000  # bytes of its output that stand for a summary
MAX_NAME: Final = 300  # characters of the name of a refused file
MAX_HEAD: Final = 64 * 1024  # bytes of the beginning of its output
PLACE_S: Final = 1.0  # between looks whether a directory is free
LAST_LOOKS: Final = 20  # at an outbox that is full: 256 envelopes each
BY_EXIT: Final = "board:exit"  # the key of an answer by exit code: a name that no worker can use
INTERNAL: Final = "internal.log"  # the file of a run that failed because of an internal error


class RunMark(msgspec.Struct, frozen=True):
    """What is recorded about a run before its worker starts."""

    run: str
    before: Manifest = Manifest()
    laid: Manifest | None = None  # what was there after its profile's setup script
    schema: int = 1


def marks(home: Path) -> Path:
    return workspace.folder(home) / "runs"


class RunDriver:
    """Drives one run. `over`: the run is over on the board; `done`: nothing is left to do for it."""

    def __init__(self, context: DispatchContext, run: Run) -> None:
        self.context = context
        self.run = run
        self.over = asyncio.Event()
        self.done = asyncio.Event()
        self.place: Path | None = None
        self._worker = worker_of(run.id)
        self._refused = ""
        self._away = False  # whether the machine that its worker runs on is unreachable
        self._claimed_at = context.clock()
        profile = context.profiles.get(run.profile)
        asked = profile is None or profile.can_be_asked  # a script uses no budget
        self._meter = BudgetMeter(context, run, self._session) if asked else None
        self._reach = ReachNote(context, run) if run.environment else None
        self.hosts = HostDesk(context, run) if profile is None or profile.ask_network else None

    async def drive(self) -> None:
        """Take the steps of the run until nothing is left to do.

        Raises:
            HoldfastError: store or supervisor do not answer; call again to restart from the first step.
        """
        context = self.context
        detail = await context.store.ask(Store.show, self.run.task_id)
        profile = context.profiles.get(self.run.profile)
        place = self.place = workspace.locate(context.home, detail.task).path
        async with self._listening():
            await self._take_steps(detail, profile, place)

    async def _take_steps(self, detail: Detail, profile: WorkerProfile | None, place: Path) -> None:
        step = RunStep.FIND
        while step is not RunStep.END:
            match step:
                case RunStep.FIND:
                    event = await self._find()
                case RunStep.BEGIN:
                    event = await self._begin(detail, profile)
                case RunStep.FOLLOW:
                    event = await self._follow()
                case RunStep.KEEP:
                    event = await self._keep(detail, profile)
                case RunStep.CHECK:
                    event = await self._check(detail, place)
                case RunStep.TEAR_DOWN:
                    event = await self._tear_down(detail, profile, place)
                case RunStep.FORGET:
                    event = self._forget()
            step = runsteps.after(step, event)

    async def locate(self) -> str:
        """The directory where it works; the dispatcher never lets two runs work in one directory at once."""
        task = await self.context.store.ask(Store.task, self.run.task_id)
        return str(await asyncio.to_thread(lambda: workspace.locate(self.context.home, task).path))

    async def give_up(self, exc: Exception) -> None:
        """Fail a run that cannot be driven: stop its worker and end it on the board; the evidence is kept.

        Raises:
            HoldfastError: store or supervisor do not answer; to be called again.
        """
        context, run = self.context, self.run
        if await context.supervisor.find(self._worker) is not None:
            await context.supervisor.stop(self._worker, grace_s=0.0)
            said = await context.supervisor.output(self._worker, MAX_OUTPUT)
            await context.store.ask(Store.keep, run.id, "output", said)
        evidence = "".join(traceback.format_exception(exc))[-MAX_HEAD:].encode("utf-8", "backslashreplace")
        await context.store.ask(Store.keep, run.id, INTERNAL, evidence)
        words = show_text(f"internal error: {type(exc).__name__}: {exc}")[:MAX_SUMMARY]
        await self._tell(Fail(FailureKind.INTERNAL, f"{words}; what is known of it is kept as {INTERNAL}"))
        self._forget()

    async def _find(self) -> RunEvent:
        if await self.context.supervisor.find(self._worker) is not None:
            return RunEvent.FOUND
        return RunEvent.OVER if self.over.is_set() else RunEvent.MISSING

    async def _check(self, detail: Detail, place: Path) -> RunEvent:
        if await self.context.store.ask(Store.checks_due, self.run.ref) is not None:
            await scripts.run_checks(self.context, self.run, detail.task, place)
        return RunEvent.DONE

    async def _tear_down(self, detail: Detail, profile: WorkerProfile | None, place: Path) -> RunEvent:
        if profile is not None and profile.teardown and await asyncio.to_thread(place.is_dir):
            await scripts.tear_down(self.context, self.run, detail.task, profile, place)
        return RunEvent.DONE

    def ingest(self, store: Store) -> int:
        """Carry out what waits in its outbox, in the thread of the store."""
        if self.place is None:
            return 0
        broker = Broker(store, self.context.key, self.run.task_id, self.context.judge_child)

        def carry_out(letter: Envelope) -> HandoffAnswer:
            answer = broker.carry_out(letter)
            verb = VERBS.get(letter.verb)
            if answer.error is not None and (verb is None or verb.terminal):
                self._refused = answer.error.message
            return answer

        def refused(file: str, reason: str) -> None:
            store.refuse_file(self.run.ref, show_text(file)[:MAX_NAME], show_text(reason)[:MAX_SUMMARY])

        return outbox.ingest(self.place, carry_out, refused)

    # --- the start

    async def _begin(self, detail: Detail, profile: WorkerProfile | None) -> RunEvent:
        """Start the worker, or record on the board why it cannot be started."""
        try:
            if profile is None:
                raise OperationFailed(f"this dispatcher has no worker profile {self.run.profile}")
            if detail.task.report_only and not profile.can_be_asked:
                await self._tell(Fail(FailureKind.HANDOFF, "a script cannot be asked for its report"))
                return RunEvent.REFUSED
            if self.run.environment and (why := profile.find_bound_here()) is not None:
                raise UsageError(f"it is for {self.run.environment}, but {why}")
            wish = await self._prepare(detail, profile)
        except (UsageError, NotFound, OperationFailed) as exc:
            if is_storage_fault(exc):
                raise  # costs no attempt: it is prepared again when there is room
            failure = FailureKind.INFRA if isinstance(exc, OperationFailed) else FailureKind.TASK
            await self._tell(Fail(failure, f"it could not be prepared: {exc}"))
            return RunEvent.REFUSED
        if self.over.is_set():
            return RunEvent.REFUSED
        try:
            if self._reach is None:
                begun: WorkerReport | None = await self.context.supervisor.start(wish)
            else:
                begun = await start_when_reached(self.context, wish, self.over.wait, self._reach.tell)
        except (UsageError, NotFound) as exc:  # nothing was started; after other errors that is unknown
            await self._tell(Fail(FailureKind.TASK, f"it could not be started: {exc}"))
            return RunEvent.REFUSED
        if begun is None:
            return RunEvent.REFUSED
        self.context.status.count_start(self.context.clock() - self._claimed_at)
        return RunEvent.STARTED

    async def _prepare(self, detail: Detail, profile: WorkerProfile) -> WorkerSpec:
        task, run, context = detail.task, self.run, self.context
        review = await context.store.ask(Store.requested_changes, task.id)
        diff = await self._read_reviewed(review)
        told = await self._add_messages(detail, profile)
        prompt = self._build_prompt(told, profile, review, diff.decode("utf-8", "replace"))
        space = await workspace.prepare(context, task, profile.copy)
        await _enter(context, run, space, self.over)
        await asyncio.to_thread(self._mark_before, space)
        grant = await asyncio.to_thread(self._lay_out, space.path)
        await asyncio.to_thread(workspace.put, space.path, task.body.encode(), Path(prompts.FILE).name)
        if diff:
            await asyncio.to_thread(workspace.put, space.path, diff, Path(prompts.REVIEWED).name)
        if (answer := prompts.read_answer(detail)) is not None:
            await asyncio.to_thread(workspace.put, space.path, answer.encode(), Path(prompts.ANSWER).name)
        for name in [file.name for file in detail.files]:
            data = await context.store.ask(Store.file, task.id, None, name)
            await asyncio.to_thread(workspace.put, space.path, data, Path(prompts.ATTACHED).name, name)
        if profile.setup and not task.report_only:
            await scripts.run_script(context, run, task, profile, space.path, "setup", self.over)
            await asyncio.to_thread(self._mark_laid, space)
        spec = context.worker_spec(run, task, profile, space.path, prompt, grant)
        if profile.secrets:
            spec.keys = await asyncio.to_thread(context.take_keys, profile, space.path)
        return await self._resume(spec, detail, profile)

    def _lay_out(self, place: Path) -> Path:
        """Write the worker's grant and return its path; no other worker can read the grant's token."""
        folder = rundirs.prepare(self.run.id)
        grant = self.context.grant(self.run, place, folder)
        whole = outbox.put_grant(self.run.id, grant)
        outbox.lay_out(place, envelope.without_token(grant, str(whole)))
        return whole

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Listen on the run's own socket for its worker; without a socket only its outbox is read."""
        context = self.context
        async with contextlib.AsyncExitStack() as opened:
            try:
                folder = await asyncio.to_thread(rundirs.prepare, self.run.id)
                heard = listen(
                    context.store,
                    context.key,
                    folder / outbox.SOCKET,
                    self.run.task_id,
                    context.judge_child,
                )
                await opened.enter_async_context(heard)
            except (OperationFailed, StartupError) as exc:
                log.warning("a run has no socket", extra={"run_id": self.run.id, "reason": str(exc)[:200]})
            yield

    async def _add_messages(self, detail: Detail, profile: WorkerProfile) -> Detail:
        """Add the messages to go into the prompt, if the template has room for any.

        A script gets them with an answer.
        """
        told: list[TaskMessage] = []
        waiting = any(message.run_id == self.run.id for message in detail.messages)
        if waiting and BRIEF in profile.prompt and not detail.task.report_only:
            told = await self.context.store.ask(Store.brief, self.run.ref)
        return msgspec.structs.replace(detail, messages=told)

    async def _resume(self, wish: WorkerSpec, detail: Detail, profile: WorkerProfile) -> WorkerSpec:
        """Continue the session of the run before, if the CLI can do that and its state is still there."""
        before = None if self.run.environment else profiles.session_before(detail.runs, self.run)
        arguments = None if before is None else profile.resume_arguments(before.name)
        if before is None or arguments is None or not self.context.state(before.owner).is_dir():
            return wish
        told: JsonObject = {profiles.RESUMES: before.owner}
        await self.context.store.ask(Store.set_run, self.run.ref, metadata=told)
        return msgspec.structs.replace(wish, arguments=arguments, state=str(self.context.state(before.owner)))

    async def _read_reviewed(self, review: RequestedChanges | None) -> bytes:
        """The diff that a review is about; empty when none is kept."""
        run = None if review is None else review.run
        if run is None:
            return b""
        try:
            return await self.context.store.ask(Store.file, self.run.task_id, run, "diff.patch")
        except NotFound:
            return b""

    def _build_prompt(
        self, detail: Detail, profile: WorkerProfile, review: RequestedChanges | None, diff: str
    ) -> str:
        """The prompt, with what was said about the work of an earlier run."""
        more = [prompts.describe_answer(detail)]
        if review is not None:
            before = {run.id for run in detail.runs if run.host == self.run.host}
            here = review.run in before or detail.task.workspace_kind is WorkspaceKind.DIR
            more.append(prompts.describe_changes(review.who, review.comments, diff, here=here))
            others = [comment for comment in detail.comments if comment not in review.comments]
            detail = msgspec.structs.replace(detail, comments=others)
        return self._fit_prompt(detail, profile, more)

    def _fit_prompt(self, detail: Detail, profile: WorkerProfile, more: list[str]) -> str:
        command = (FAR_COMMAND,) if self.run.environment else self.context.command
        channel = prompts.ReportChannel(command, tools=profile.channel == "mcp")
        if detail.task.report_only:
            return profile.build_prompt(prompts.build_report_request(detail, channel))
        prompt = profile.build_prompt(prompts.build_prompt(profile.prompt, detail, channel, more))
        if not prompts.fits(prompt) and profile.prompt == "{body}":
            return f"exec sh {prompts.FILE}"
        return prompt

    def _mark_before(self, space: Workspace) -> None:
        if not (marks(self.context.home) / self.run.id).exists():
            self._write(RunMark(self.run.id, changes.look(space.path) if space.kind == "dir" else Manifest()))

    def _mark_laid(self, space: Workspace) -> None:
        """Record the files that the profile's setup left, so that they do not count as the worker's."""
        found = changes.look(space.path)
        self._write(RunMark(self.run.id, found if space.kind == "dir" else Manifest(), found))

    def _write(self, mark: RunMark) -> None:
        place = marks(self.context.home) / self.run.id
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place, msgspec.json.encode(mark))

    def _forget(self) -> RunEvent:
        rundirs.remove(self.run.id)
        (marks(self.context.home) / self.run.id).unlink(missing_ok=True)
        return RunEvent.DONE

    # --- the end

    async def _follow(self) -> RunEvent:
        """Wait until the worker's leader has ended; stop it when the run is over or has spent its budget."""
        loop = asyncio.get_running_loop()
        ended = loop.create_task(self.context.supervisor.wait_ended(self._worker, self._take))
        sooner = [loop.create_task(self.over.wait())]
        if self._meter is not None:
            sooner.append(loop.create_task(self._meter.empty.wait()))
        try:
            await asyncio.wait([ended, *sooner], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                run = await self.context.store.ask(Store.run, self.run.id)
                await asyncio.wait([ended], timeout=runsteps.farewell_s(run.outcome))
                while not ended.done() and fleet.is_waited_for(run.outcome, unreached=self._away):
                    await asyncio.wait([ended], timeout=PLACE_S)
            if not ended.done():
                await self.context.supervisor.stop(self._worker, grace_s=GRACE_S)
            await ended
        except NotFound:
            if not self.run.environment:
                raise
            return RunEvent.UNDONE  # the link was lost before the worker ran
        finally:
            for task in (ended, *sooner):
                task.cancel()
            await asyncio.gather(ended, *sooner, return_exceptions=True)
        return RunEvent.DONE

    async def _take(self, report: WorkerReport) -> None:
        """Process a report of the running worker."""
        if self._meter is not None:
            await self._meter.take(report)
        if self._reach is not None:
            self._away = fleet.is_unreached(report.state, report.detail)
            await self._reach.take(report)
        await self._take_hosts(report)

    async def _take_hosts(self, report: WorkerReport) -> None:
        """Create the desk on demand: the profile may have changed since the run began."""
        if self.hosts is None and report.asked_hosts:
            self.hosts = HostDesk(self.context, self.run)
        if self.hosts is not None:
            await self.hosts.take(report)

    async def _keep(self, detail: Detail, profile: WorkerProfile | None) -> RunEvent:
        """Stop the leader's remaining processes, keep the results, and record the outcome on the board."""
        context, space = self.context, workspace.locate(self.context.home, detail.task)
        report = await context.supervisor.stop(self._worker, grace_s=0.0)
        await self._take_hosts(report)
        for _ in range(LAST_LOOKS):
            if not await context.store.ask(self.ingest):
                break
        run = await context.store.ask(Store.run, self.run.id)
        home = None if report.host is None else await bring_home(context, run, report)
        changed = await self._changes(space)
        await _verify(context, run, space)
        said = await context.supervisor.output(self._worker, MAX_OUTPUT)
        if self._meter is not None:
            await self._meter.take(report)
        end = _end(report)
        judged: Outcome | None = None
        if run.outcome is None:
            worked = await asyncio.to_thread(self._count_worked, space.path, changed)
            work = WorkFound(worked, self._refused, detail.task.report_only)
            last = said[-MAX_SUMMARY:].decode("utf-8", "replace")
            judged = runsteps.judge(end, work, profile.success if profile else "report", said=last)
            if self._meter is not None:
                judged = runsteps.apply_budget(judged, await self._meter.describe_spent())
            if home is not None:
                judged = runsteps.apply_return(judged, home.problem)
        kept = {
            "end.json": _record(run, report, changed, judged),
            "diff.patch": changed.diff.encode()[:MAX_FILE],
            "output": said,
        }
        for name, data in kept.items():
            await context.store.ask(Store.keep, run.id, name, data)
        session = await asyncio.to_thread(self._session)
        usage = {} if report.usage is None else {"usage": msgspec.to_builtins(report.usage)}
        told: JsonObject = usage | ({} if home is None else home.to_metadata())
        await context.store.ask(Store.set_run, run.ref, session=session or None, metadata=told)
        reached = runsteps.make_account(report.hosts, report.traffic, whole=report.network)
        await context.store.ask(Store.tell_network, run.ref, reached)
        if judged is not None:
            await self._tell(judged)
        return RunEvent.DONE

    def _session(self) -> str:
        """The CLI's name for its session; empty if it gave none."""
        profile = self.context.profiles.get(self.run.profile)
        return profile.session_in(_read_head(self.context.home, self._worker)) if profile else ""

    async def _changes(self, space: Workspace) -> Changes:
        try:
            if space.base:
                repository = await asyncio.to_thread(find_repository, space.repository)
                return await changes.since_commit(
                    self.context.git, repository, space.path, space.base, space.copied
                )
            return await asyncio.to_thread(self._compare, space.path)
        except (OperationFailed, UsageError, NotFound) as exc:
            return Changes(1, ("? what changed is not known",), f"{exc}\n")

    def _compare(self, path: Path) -> Changes:
        return manifest.compare(self._read_mark().before, changes.look(path))

    def _count_worked(self, path: Path, changed: Changes) -> int:
        """How many files this run changed, not counting those that its profile's setup made before."""
        laid = self._read_mark().laid
        return changed.count if laid is None else manifest.compare(laid, changes.look(path)).count

    def _read_mark(self) -> RunMark:
        try:
            return decoding.decode((marks(self.context.home) / self.run.id).read_bytes(), RunMark)
        except (OSError, msgspec.MsgspecError):
            return RunMark(self.run.id)

    async def _tell(self, judged: Outcome) -> None:
        ref = self.run.ref

        def tell(store: Store) -> None:
            with contextlib.suppress(StaleRun):  # ended otherwise meanwhile: that outcome stands
                match judged:
                    case Complete(summary):
                        store.complete(ref, BY_EXIT, summary)
                    case Fail(failure, reason, resets_s):
                        # by the store's clock, which may differ from the local one
                        resets_ms = None if resets_s is None else store.now_ms() + round(resets_s * 1000)
                        store.fail(ref, failure, error=reason, resets_ms=resets_ms)
                    case Stop(spent, reason):
                        store.stop_spent(ref, spent, error=reason)

        await self.context.store.ask(tell)


def _read_head(home: Path, worker: str) -> str:
    """The beginning of the worker's output, where CLIs name their session."""
    for name in ("output.log.1", "output.log"):
        with contextlib.suppress(OSError), open(home / "workers" / worker / name, "rb") as file:
            return file.read(MAX_HEAD).decode("utf-8", "replace")
    return ""


def _end(report: WorkerReport) -> WorkerEnd:
    return WorkerEnd(
        state=report.state,
        failure=report.failure,
        about=report.about,
        exit_code=report.exit_code,
        denials=tuple(dict.fromkeys(denial.path for denial in report.denials)),
        limit_s=report.limit_ends_in_seconds,
    )


def _record(run: Run, report: WorkerReport, changed: Changes, judged: Outcome | None) -> bytes:
    """A record of how the run ended, for later inspection."""
    told = None if judged is None else {"kind": type(judged).__name__.lower(), **_words(judged)}
    data = {
        "schemaVersion": 1,
        "run": run.id,
        "answered": run.outcome,
        "judged": told,
        "changed": {"count": changed.count, "paths": changed.paths},
        "worker": report,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=1)


def _words(judged: Outcome) -> dict[str, str]:
    match judged:
        case Complete(summary):
            return {"summary": summary}
        case Fail(failure, reason):
            return {"failure": failure, "reason": reason}
        case Stop(spent, reason):
            return {"spent": spent, "reason": reason}


async def _enter(context: DispatchContext, run: Run, space: Workspace, over: asyncio.Event) -> None:
    """Record where a run works; wait while a run of another host occupies the directory.

    Raises:
        OperationFailed: the run was over before that.
        HoldfastError: the store does not answer.
    """
    ask, path = context.store.ask, str(space.path)
    if space.kind is not WorkspaceKind.DIR:
        await ask(Store.set_run, run.ref, workspace=path)
        return
    waited = False
    while True:
        try:
            await ask(Store.occupy, run.ref, path)
            break
        except Conflict as exc:
            note, waited = f"waits: {exc}", True
            await ask(Store.heartbeat, run.ref, note=note)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PLACE_S):
                await over.wait()
            raise OperationFailed("it was over before its directory was free")
    if waited:
        await ask(Store.heartbeat, run.ref)


async def _verify(context: DispatchContext, run: Run, space: Workspace) -> None:
    """Check the files that a run claims to have made; record the missing ones. Its answer stands."""
    if runs.CARDS in run.metadata or runs.FILES in run.metadata:
        files = runs.names_in(run, runs.FILES)
        missing = await asyncio.to_thread(workspace.find_absent, space.path, files)
        await context.store.ask(Store.verify, run.ref, missing)
