"""Workers for programs: start them, follow them, end them.

    async with holdfast.Workers.connect() as workers:
        worker = await workers.run("codex", prompt="fix the tests", cwd="/srv/project")
        async for change in worker.changes():
            print(change.state, change.about)

Workers belong to the supervisor, not to the connection: closing the connection does not end them. A report is
the object that `holdfast worker status --json` prints, as a struct.
"""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import UNSET

from holdfast.agents.catalog.agent import Agent, state_of
from holdfast.agents.catalog.known import find_vouched
from holdfast.agents.changes.baseline import since_baseline
from holdfast.agents.changes.git import Git
from holdfast.agents.evidence.advice import EquivalenceReport
from holdfast.agents.evidence.evidence import WorkerState
from holdfast.agents.fleet import returned
from holdfast.agents.fleet.sending import Carried
from holdfast.agents.supervisor import background, elsewhere, messages
from holdfast.agents.worker.book import WorkerRecords
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.egress.keys.sources import find_file, read_key
from holdfast.errors import ConnectionLost, NotFound, OperationFailed, UsageError
from holdfast.home import default_home
from holdfast.local.programs import find_program
from holdfast.local.shown import strip_sequences
from holdfast.sandbox.policy.credentials import credentials
from holdfast.sandbox.policy.hostwish import ASK_WORKER_S
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.secretwish import parse_secret
from holdfast.unixrpc.calls import RpcMethod
from holdfast.unixrpc.client import CALL_S, RpcClient
from holdfast.wire.permissions import AllowedHosts
from holdfast.wire.processes import SecretKey

ANSWER_S: Final = 10.0
_UNNESTED: Final = ("TMUX", "TMUX_PANE")

P = TypeVar("P")
R = TypeVar("R")

RUN_S: Final = 120.0  # to start a worker, with its sandbox and its preflight
CARRY_S: Final = 1800.0  # to start a worker after its workspace was sent over a slow line
# The variables that a worker gets of its caller's environment by default: enough to find programs and a home.
PASSED: Final = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TZ", "USER")


def own_variables(agent: str, *, keys: bool = True) -> tuple[str, ...]:
    """Return the variables that configure this CLI: the places of its files, and its keys."""
    known = find_vouched(agent)
    return () if known is None else (*known.relocation, *(known.keys if keys else ()))


def select_variables(names: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that a worker inherits by default, and those in `names`."""
    wanted = {*PASSED, *names, *(name for name in environ if name.startswith("LC_"))}
    return {name: environ[name] for name in sorted(wanted) if name in environ}


def take_keys(
    wishes: Sequence[str], environ: Mapping[str, str] = os.environ, outside: Sequence[str] = ()
) -> list[SecretKey]:
    """Read the keys that stay outside of a worker, given as for `--secret`, from their sources.

    A program that provides a key is not run from below the directories `outside`. It may ask a person.

    Raises:
        UsageError: a key cannot be read.
    """
    found: dict[str, SecretKey] = {}
    for wish in map(parse_secret, wishes):
        known = found.get(wish.name)
        value = read_key(wish, environ, outside) if known is None else known.value
        hosts = [*(known.hosts if known else ()), wish.target]
        found[wish.name] = SecretKey(wish.name, value, hosts)
    return list(found.values())


def find_key_files(wishes: Sequence[str]) -> list[str]:
    """Return the files that these keys are read from, which workers must not read. Raises UsageError."""
    paths = [path for path in (find_file(parse_secret(text)) for text in wishes) if path is not None]
    return list(dict.fromkeys((*paths, *map(os.path.realpath, paths))))


def find_withheld(
    agent: str, *, cwd: str, granted: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the user's credentials that a worker must not read: the same list as for dispatched workers.

    Exceptions are the CLI's own state by its record in the catalogue, paths that were granted by name (a
    grant of the whole home names none), and the working directory.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    named = [path for path in map(os.path.abspath, granted) if not within(home, path)]
    known = find_vouched(agent)
    return [
        path
        for path in credentials(home, granted=named)
        if os.path.lexists(path)
        and not within(cwd, path)
        and not (known is not None and _is_its_own(known, path, home, cwd, environ))
    ]


def _is_its_own(agent: Agent, path: str, home: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Return whether it is the CLI's own state.

    Nothing becomes that by being in a shared one such as ~/.local.
    """
    kept = state_of(agent, path, home=home, work=cwd, environment=environ)
    return kept is not None and not (kept.variable.startswith("XDG_") and not kept.below)


class WaitFor(StrEnum):
    """What a caller of `wait` waits for; the end of a worker always ends the wait."""

    ENDED = "ended"
    WAITING = "waiting"  # for an answer, or another prompt
    BLOCKED = "blocked"  # by the sandbox, a lock, a signal; or by an unknown cause


_AWAITED: Final = {
    WorkerState.WAITING: WaitFor.WAITING,
    WorkerState.BLOCKED: WaitFor.BLOCKED,
    WorkerState.STALLED: WaitFor.BLOCKED,
}


def is_awaited(report: messages.WorkerReport, until: Collection[WaitFor]) -> bool:
    return report.state.ended or _AWAITED.get(report.state) in until


class Worker:
    """A handle of a worker; `report` is the newest report that was received."""

    def __init__(self, workers: "Workers", report: messages.WorkerReport) -> None:
        self._workers = workers
        self._named = messages.WorkerParams(report.id)
        self.report = report
        self.id = report.id

    async def status(self) -> messages.WorkerReport:
        """Fetch the present report. Raises NotFound."""
        self.report = await self._workers.call(messages.STATUS, self._named)
        return self.report

    async def changes(self) -> AsyncIterator[messages.WorkerReport]:
        """Yield every report from now on, the present one first, until the worker has ended.

        Raises:
            ConnectionLost: the supervisor is gone; connect again.
        """
        async with Workers.connect(self._workers.home) as own:  # a subscription is a connection of its own
            await own.subscribe()
            yield await self.status()
            if self.report.state.ended:
                return
            async for report in own.changes():
                if report.id == self.id:
                    self.report = report
                    yield report
                    if report.state.ended:
                        return
        raise ConnectionLost("the supervisor is gone", remedy="connect again; the worker is not affected")

    async def why(self) -> messages.ExplainedReport:
        """Return its report, with the reasons for its state."""
        return await self._workers.call(messages.WHY, self._named)

    async def equivalence(self) -> EquivalenceReport:
        """Return whether its surroundings are those that its CLI would have without us.

        `holdfast worker equivalence --json` prints the same. Waits until the comparison is done, some seconds
        after the start.
        """
        return await self._workers.call(messages.EQUIVALENCE, self._named, timeout_s=None)

    async def logs(self, max_bytes: int) -> bytes:
        """Return the end of its output."""
        return (await self._workers.call(messages.LOGS, messages.LogsParams(self.id, max_bytes))).data

    async def output(self, max_bytes: int = 16 * 1024) -> str:
        """Return the end of its output as text, or the present content of its terminal if it has one."""
        if self.report.tty:
            return (await self.result()).screen
        return strip_sequences((await self.logs(max_bytes)).decode("utf-8", "replace"))

    async def result(self) -> messages.WorkerResult:
        """Return its report with its answer: the text after its last tool call."""
        found = await self._workers.call(messages.RESULT, self._named)
        self.report = found
        return found

    async def diff(self) -> messages.WorkerDiff:
        """Return what changed in its directory since it was started, as a patch; also while it runs.

        For a worker that was restarted with another grant, the changes since the first start.

        Raises:
            NotFound: its directory was not recorded before it was started; or its results did not return from
                another machine.
        """
        home = self._workers.home
        if self.report.host is not None:
            return await self._diff_returned()
        kept = await asyncio.to_thread(WorkerRecords(home).baseline, self.id)
        if kept is None:
            raise NotFound(
                f"nobody looked at {self.report.cwd} before {self.id} was started",
                remedy="it is an older worker, or its record could not be kept; ask git in there",
            )
        git = Git(home, os.environ.get("HOME", "/"), background.reach_exec_server)
        found = await since_baseline(git, kept.taken, Path(self.report.cwd))
        return messages.WorkerDiff(
            id=self.id,
            cwd=self.report.cwd,
            since=kept.since,
            count=found.count,
            paths=list(found.paths),
            diff=found.diff,
        )

    async def _diff_returned(self) -> messages.WorkerDiff:
        git, carried, own, commit = await self._find_returned()
        found = await returned.compare(git, carried, own, commit)
        return messages.WorkerDiff(
            id=self.id,
            cwd=self.report.cwd,
            since=self.id,
            count=found.count,
            paths=list(found.paths),
            diff=found.diff,
        )

    async def _find_returned(self) -> tuple[Git, Carried, Path, str]:
        report = await self.status()
        if report.host is None:
            raise UsageError(f"{self.id} worked on this machine, in {report.cwd} itself")
        if report.returned is None:
            when = "it is brought back when the worker ends" if not report.state.ended else None
            raise NotFound(
                f"nothing came back from {report.host}: {report.unreturned or 'not yet'}", remedy=when
            )
        book = WorkerRecords(self._workers.home)
        carried = elsewhere.read_carried(book, self.id)
        own = book.folder(self.id) / elsewhere.FOLDER
        return elsewhere.git_of(self._workers.home), carried, own, report.returned

    async def apply(self, branch: str | None = None) -> messages.AppliedWork:
        """Write what a worker on another machine changed into the directory that was carried there.

        Writes all of it or nothing. With `branch`, makes that branch in the repository and touches no file.

        Raises:
            NotFound: nothing came back.
            InvalidRequest: some of these files have changed here meanwhile.
            UsageError: it worked on this machine; or there is such a branch.
        """
        git, carried, own, commit = await self._find_returned()
        if branch is not None:
            await returned.make_branch(git, carried, own, commit, branch)
            return messages.AppliedWork(id=self.id, directory=carried.top, branch=branch, commit=commit)
        done = await returned.apply(git, carried, own, commit)
        return messages.AppliedWork(
            id=self.id, directory=carried.top, paths=list(done.paths), left_out=list(done.left_out)
        )

    async def wait(
        self, until: Collection[WaitFor] = (WaitFor.ENDED,), *, timeout_s: float | None = None
    ) -> messages.WorkerReport:
        """Wait until it has ended or is in one of these states; return its report.

        Raises:
            TimeoutError: that did not happen within `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            if set(until) == {WaitFor.ENDED}:
                self.report = await self._workers.call(messages.WAIT, self._named, timeout_s=None)
                return self.report
            async for report in self.changes():
                if is_awaited(report, until):
                    break
        return self.report

    async def grant(
        self,
        *,
        allow_write: Sequence[str] = (),
        allow_read: Sequence[str] = (),
        allow_host: Sequence[str] = (),
        allow_net: Sequence[str] = (),
        allow_private: bool = False,
        network: bool = False,
        key: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> "Worker":
        """End it if it runs, and start it again with these additional grants; return the new worker.

        The new worker begins anew, with the same prompt and in the same directory. It gets the same variables
        of the environment, with their present values.

        Raises:
            UsageError: it has that already, or needs a key that is not given, or works on a task of a board.
            NotFound: it is not known what it was started with.
        """
        asked = messages.GrantParams(
            worker=self.id,
            writable=list(allow_write),
            readable=list(allow_read),
            network=network,
            hosts=list(allow_host),
            presets=list(allow_net),
            private=allow_private,
            environ=dict(environ),
            key=key,
        )
        started = Worker(self._workers, await self._workers.call(messages.GRANT, asked, timeout_s=RUN_S))
        if self.report.pane is not None:
            await started.show_in_tmux()
        return started

    async def send(self, text: str = "", keys: Sequence[str] = ()) -> str:
        """Type a text and submit it, then press keys; return whether the program was seen to take the text.

        Raises:
            InvalidRequest: it does not wait for that now.
        """
        return (
            await self._workers.call(messages.SEND, messages.SendParams(self.id, text, list(keys)))
        ).outcome

    async def approve(self, option: str | None = None, *, request: str | None = None) -> messages.GivenAnswer:
        """Allow what it asks: with this option, or just this once; return what was answered.

        `request` is the id of the question to answer, from `report.asks`.

        Raises:
            InvalidRequest: there is no open question, or a different one, or no known way to answer it.
            UsageError: that option is not offered.
        """
        return await self._workers.call(
            messages.APPROVE, messages.ApproveParams(self.id, option, False, request)
        )

    async def deny(self, option: str | None = None, *, request: str | None = None) -> messages.GivenAnswer:
        """Deny what it asks; parameters and errors as for `approve`."""
        return await self._workers.call(
            messages.APPROVE, messages.ApproveParams(self.id, option, True, request)
        )

    async def show_in_tmux(self) -> str:
        """Show it in tmux (`tmux attach -t holdfast-ID`); return the id of the pane.

        Raises:
            NotFound: tmux is not installed.
        """
        pane = await show_in_pane(self._workers.home, self.id)
        self.report = await self._workers.call(messages.SHOWN, messages.ShownParams(self.id, pane))
        return pane

    async def stop(self, *, grace_s: float | None = None) -> messages.WorkerReport:
        """End it, gracefully if it ends within `grace_s`; return its last report."""
        self.report = await self._workers.call(
            messages.STOP, messages.StopParams(self.id, grace_s), timeout_s=None
        )
        return self.report


class Workers:
    """A connection to the supervisor."""

    def __init__(self, client: RpcClient, home: Path) -> None:
        self._client = client
        self.home = home

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, home: Path | None = None) -> AsyncIterator["Workers"]:
        """Connect to the supervisor of `home`, which is started if there is none.

        Raises:
            OperationFailed: it does not start.
        """
        where = home or default_home()
        client = await background.reach_supervisor(where)
        try:
            yield cls(client, where)
        finally:
            await client.aclose()

    async def run(
        self,
        agent: str,
        *,
        cwd: str,
        prompt: str | None = None,
        env: Mapping[str, str] | None = None,
        allow_credentials: bool = False,
        allow_host: Sequence[str] = (),
        allow_net: Sequence[str] = (),
        net_limit: Sequence[str] = (),
        deny_host: Sequence[str] = (),
        allow_private: bool = False,
        ask_network: bool = False,
        secrets: Sequence[str] = (),
        **more: Any,
    ) -> Worker:
        """Start a worker. `more` are other members of `WorkerSpec` (`agents/worker/launching.py`).

        It reaches the hosts of its model provider, if the record of its CLI names them, and those in
        `allow_host` (as for `Policy.allow_host`). With `network=True` it reaches all hosts, with
        `network=False` only those in `allow_host`, except that a CLI with its own sandbox keeps its provider.
        `allow_net` adds hosts from a client's settings on this machine, as `Policy.allow_net` does, and
        `net_limit` bounds the traffic, as `Policy.limit_net` does.
        With `ask_network` a connection to another host waits until a client answers (`Worker.approve`).
        Keys that its CLI takes from variables stay outside (with `keys_inside=True` they enter), and so do
        `secrets`, written as for `holdfast exec --secret`: `GITHUB_TOKEN@api.github.com`.
        A confined worker cannot read credentials of its user (`find_withheld`) unless they are allowed.
        Without `env` it inherits the variables that configure its CLI, but no keys if it is sent to another
        provider. A worker on another machine (`host`, an environment) inherits neither: it gets only the
        variables in `env` (by default locale and time zone), and `key`.
        """
        secret = list(more.pop("secret", ()))
        if not allow_credentials:
            named = [*more.get("writable", ()), *more.get("readable", ())]
            secret += find_withheld(agent, cwd=cwd, granted=named)
        far = more.get("host") is not None
        own = () if far else own_variables(agent, keys=more.get("base") is None)
        inherited = dict(env or select_variables(own))
        if secrets:
            more["keys"] = await asyncio.to_thread(take_keys, secrets, os.environ, (cwd,))
            secret += find_key_files(secrets)
        if allow_host or deny_host or allow_private or ask_network or net_limit:
            asked = round(ASK_WORKER_S * 1000) if ask_network else UNSET
            rules = (list(allow_host), list(deny_host), allow_private)
            more["hosts"] = AllowedHosts(*rules, limits=list(net_limit), ask_timeout_ms=asked)
        if allow_net:
            more["presets"] = list(allow_net)
        wish = WorkerSpec(agent=agent, cwd=cwd, prompt=prompt, env=inherited, secret=secret, **more)
        limit_s = CARRY_S if far else RUN_S
        return Worker(self, await self.call(messages.RUN, wish, timeout_s=limit_s))

    async def find(self, worker: str) -> Worker:
        """Return a handle of an existing worker. Raises NotFound."""
        return Worker(self, await self.call(messages.STATUS, messages.WorkerParams(worker)))

    async def list(self, *, ended: bool = False) -> list[messages.WorkerReport]:
        return await self.call(messages.LIST, messages.ListParams(ended))

    async def stop(
        self, ids: Collection[str], *, grace_s: float | None = None
    ) -> Sequence[messages.WorkerReport]:
        """End these workers concurrently; return their last reports.

        Raises:
            NotFound: one of them does not exist; then none is ended.
        """
        found = [await self.find(id) for id in ids]
        return await asyncio.gather(*(worker.stop(grace_s=grace_s) for worker in found))

    async def prune(
        self, *, kept_s: float | None = None, kept_bytes: int | None = None
    ) -> Sequence[messages.PrunedWorker]:
        """Remove the data of ended workers that are older than `kept_s`, and the oldest beyond `kept_bytes`.

        The defaults are the bounds that the supervisor itself applies. Their dead tmux panes are removed,
        too.
        """
        asked = messages.PruneParams(kept_s=kept_s, kept_bytes=kept_bytes)
        gone = await self.call(messages.PRUNE, asked, timeout_s=None)
        for one in gone:
            if one.pane is not None:
                with contextlib.suppress(NotFound, OperationFailed):  # no tmux any more, or no such session
                    await _tmux(None, "kill-session", "-t", f"={session_name(one.id)}")
        return gone

    async def subscribe(self) -> Sequence[messages.WorkerReport]:
        """Subscribe this connection to `changes`; return the reports of the living workers."""
        return await self.call(messages.CHANGES, messages.ListParams())

    async def changes(self) -> AsyncIterator[messages.WorkerReport]:
        """Yield the report of every worker that changes, after `subscribe`, until the supervisor is gone."""
        async for said in self.notices():
            if isinstance(said, messages.WorkerReport):
                yield said

    async def wait(
        self,
        ids: Collection[str] = (),
        until: Collection[WaitFor] = tuple(WaitFor),
        *,
        timeout_s: float = 30.0,
    ) -> Sequence[messages.WorkerReport]:
        """Wait until one of these workers, or of all living ones, has ended or is in one of these states.

        Returns the reports of all of them, after `timeout_s` at the latest. Opens a connection of its own for
        the subscription.

        Raises:
            NotFound: there is no such worker.
            ConnectionLost: the supervisor is gone.
        """
        async with Workers.connect(self.home) as own:
            reports = {report.id: report for report in await own.subscribe()}
            for id in ids:
                if id not in reports:
                    reports[id] = (await own.find(id)).report
            chosen = list(ids) or list(reports)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    news = own.changes()
                    while chosen and not any(is_awaited(reports[id], until) for id in chosen):
                        report = await anext(news, None)
                        if report is None:
                            raise ConnectionLost("the supervisor is gone", remedy="ask again")
                        reports[report.id] = report
        return [reports[id] for id in chosen]

    def notices(self) -> AsyncIterator[object]:
        """Yield all notifications of the supervisor on this connection."""
        return self._client.notices()

    async def call(self, method: RpcMethod[P, R], params: P, *, timeout_s: float | None = CALL_S) -> R:
        """Call the supervisor. Raises its HoldfastError; PeerGone, a ConnectionLost, if it is gone."""
        return await self._client.call(method, params, timeout_s=timeout_s)


async def show_in_pane(home: Path, worker: str, *, socket: str | None = None) -> str:
    """Make a detached tmux session with a view of the worker, which owns nothing; return the pane's id.

    Raises:
        NotFound: tmux is not installed.
        OperationFailed: tmux refuses.
    """
    # -P: the pane may start in a directory that the worker can write, and Python must import nothing from it.
    view = [sys.executable, "-P", "-m", "holdfast", "worker", "attach", worker, "--home", str(home)]
    return await _tmux(
        socket,
        *("new-session", "-d", "-P", "-F", "#{pane_id}", "-s", session_name(worker), "-x", "120", "-y", "40"),
        f"exec {shlex.join(view)}",
        ";",
        *("set-option", "-t", session_name(worker), "remain-on-exit", "on"),
    )


def session_name(worker: str) -> str:
    return f"holdfast-{worker}"


async def _tmux(socket: str | None, *words: str) -> str:
    program = find_program("tmux", os.environ.get("PATH", os.defpath), [os.getcwd()])
    if program is None:
        raise NotFound(
            "tmux is not installed, or only where workers could replace it",
            remedy="install tmux in /usr/bin, or use --tty and `holdfast worker attach`",
        )
    argv = [program, *(("-L", socket) if socket else ()), *words]
    return await asyncio.to_thread(_answer, argv)


def _answer(argv: list[str]) -> str:
    env = {name: value for name, value in os.environ.items() if name not in _UNNESTED}
    # Output goes to files: a tmux server started here inherits the descriptors, and a pipe would never end.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaint:
        try:
            code = subprocess.run(  # noqa: S603 - tmux, with our own words
                argv,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complaint,
                env=env,
                timeout=ANSWER_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise OperationFailed("tmux does not answer") from None
        for file in (said, complaint):
            file.seek(0)
        if code:
            raise OperationFailed(f"tmux: {complaint.read().decode('utf-8', 'replace').strip()}")
        return said.read().decode().strip()
