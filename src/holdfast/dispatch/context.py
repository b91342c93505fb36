"""State shared by all runs of a dispatcher: locations, store, supervisor, and what workers may access."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.changes.git import Git
from holdfast.agents.sdk import find_key_files, own_variables, select_variables, take_keys
from holdfast.agents.supervisor import background
from holdfast.agents.worker.launching import Handover, WorkerSpec
from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import Run, Task, WorkspaceKind
from holdfast.dispatch.installed import InstalledProfiles
from holdfast.dispatch.rules import inheritance
from holdfast.dispatch.rules.dispatcherstatus import DispatcherStatus
from holdfast.dispatch.rules.profiles import BUILTIN, WorkerProfile
from holdfast.dispatch.supervisorclient import SupervisorClient
from holdfast.handoff import outbox
from holdfast.handoff.envelope import Grant, mint
from holdfast.handoff.sender import VARIABLE
from holdfast.local.lock import lock_folder
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.policy.credentials import credentials
from holdfast.wire.permissions import AllowedHosts
from holdfast.wire.processes import SecretKey

FAR_COMMAND: Final = "holdfast"  # on the PATH of another machine
_BESIDE: Final = ("", "-wal", "-shm", "-journal")  # of a SQLite file


def worker_of(run: str) -> str:
    """The supervisor's name for the worker of a run, by which it is found again after a crash."""
    return run.replace("_", "-")


@dataclass(frozen=True, slots=True)
class DispatchContext:
    home: Path
    address: str
    host: str
    store: AsyncStore
    supervisor: SupervisorClient
    profiles: InstalledProfiles
    command: tuple[str, ...]  # the beginning of a command line that runs `holdfast`
    key: bytes = field(repr=False)
    environ: Mapping[str, str] = field(repr=False)
    status: DispatcherStatus
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time

    @property
    def git(self) -> Git:
        return Git(self.home, self.environ.get("HOME", "/"), background.reach_exec_server)

    def grant(self, run: Run, workspace: Path, folder: Path) -> Grant:
        """The capability of a run. `folder` is the run's own directory."""
        return Grant(
            board=run.board,
            task=run.task_id,
            run=run.id,
            generation=run.generation,
            token=mint(self.key, run.board, run.task_id, run.id, run.generation),
            socket=str(folder / outbox.SOCKET),
            outbox=str(outbox.place_of(workspace)),
            command=list(self.command),
        )

    def judge_child(self, parent: str, child: str) -> str:
        """What a person is asked before a task by a worker of `parent` runs as `child`; empty if nothing."""
        if child in ("", parent):
            return ""
        above, below = self.profiles.get(parent), self.profiles.get(child)
        if above is None or below is None:
            return inheritance.ask_about(parent, child, ["nobody here knows what"])
        excess = inheritance.find_excess(above, below, self.environ)
        return inheritance.ask_about(parent, child, excess) if excess else ""

    def state(self, run: str) -> Path:
        """Where the CLI of a run keeps its own state."""
        return self.home / "workers" / worker_of(run) / "state"

    def worker_spec(
        self, run: Run, task: Task, profile: WorkerProfile, workspace: Path, prompt: str, grant: Path
    ) -> WorkerSpec:
        """The spec of a worker that sees only its own workspace, no credentials, and nothing of the board."""
        user = self.environ.get("HOME", "/")
        writable = [
            os.path.join(user, path[2:]) if path.startswith("~/") else path for path in profile.writable
        ]
        # A built-in profile's key variables were not named by the user, so they are not sent to another
        # machine.
        named = () if run.environment and profile == BUILTIN.get(profile.name) else profile.env
        names = (*named, *own_variables(profile.cli, keys=False))
        own = select_variables(names, self.environ) | dict(profile.variables)
        spec = WorkerSpec(
            id=worker_of(run.id),
            agent=profile.cli,
            cwd=str(workspace),
            env={**own, VARIABLE: str(grant)},
            prompt=prompt,
            model=profile.model,
            mcp=[*self.command, "mcp", "--run", str(grant)] if profile.channel == "mcp" else None,
            base=profile.provider,
            key=self.environ.get(profile.key_env) if profile.key_env else None,
            keys_inside=profile.keys_inside,
            network=profile.network,
            hosts=profile.allowed_hosts,
            presets=list(profile.presets),
            relocate=profile.relocate,
            writable=writable,
            readable=[str(grant.parent)],
            sockets=[str(grant.parent / outbox.SOCKET)],
            needed=self._programs(profile, own.get("PATH", os.defpath)),
            secret=[
                str(self.home),
                str(lock_folder(user)),
                *self._files(),
                *credentials(user, granted=writable),
                *find_key_files(profile.secrets),
            ],
            private_tmp=True,
            compared=profile.can_be_asked,
            wall_limit_s=task.max_runtime_s or profile.max_runtime_s,
            idle_limit_s=profile.idle_s,
            limits=dict(profile.limits),
        )
        return self._send_elsewhere(spec, run, task, profile) if run.environment else spec

    def _send_elsewhere(self, spec: WorkerSpec, run: Run, task: Task, profile: WorkerProfile) -> WorkerSpec:
        """The spec for another machine, which has none of this disk's paths but Holdfast on its PATH."""
        workspace = Path(spec.cwd)
        grant = msgspec.structs.replace(
            self.grant(run, workspace, workspace), socket="", outbox="", command=[FAR_COMMAND]
        )
        return msgspec.structs.replace(
            spec,
            host=run.environment,
            handover=Handover(
                folder=str(outbox.place_of(workspace).parent),
                grant=msgspec.json.encode(grant).decode(),
                variable=VARIABLE,
                reports=profile.success == "report",
            ),
            alone=task.workspace_kind is WorkspaceKind.SCRATCH,
            env={name: value for name, value in spec.env.items() if name != VARIABLE},
            mcp=None,
            writable=[],
            readable=[],
            sockets=[],
            needed=[],
            secret=[],
            private_tmp=False,
        )

    def take_keys(self, profile: WorkerProfile, workspace: Path) -> list[SecretKey]:
        """The keys that this profile's workers use without having them in the sandbox. Raises UsageError."""
        return take_keys(profile.secrets, self.environ, (str(workspace), str(self.home)))

    def script_spec(
        self,
        run: Run,
        task: Task,
        profile: WorkerProfile,
        workspace: Path,
        name: str,
        script: str,
        limit_s: float,
    ) -> WorkerSpec:
        """A script confined like the run's worker, but without its keys: it may execute what a worker wrote.

        A script has no provider, so it gets no more network than the profile names. No questions about other
        hosts are asked on its behalf, because nothing relays answers to it.
        """
        return msgspec.structs.replace(
            self.worker_spec(run, task, profile, workspace, script, workspace),
            handover=None,
            readable=[],
            sockets=[],
            id=f"{worker_of(run.id)}-{name}",
            agent="shell",
            compared=False,
            env=select_variables((), self.environ) | dict(profile.variables),
            network=_network_of_scripts(profile),
            hosts=_hosts_of_scripts(profile),
            model=None,
            mcp=None,
            base=None,
            key=None,
            keys=[],
            wall_limit_s=limit_s,
            idle_limit_s=None,
        )

    def _programs(self, profile: WorkerProfile, search: str) -> list[str]:
        """Programs a worker runs by name: `holdfast` for its report, and that of a profile with a command."""
        program = shutil.which(profile.command[0], path=search) if profile.command else None
        more = () if program is None else prerequisites.of_program(program, search)
        return [*prerequisites.of_ourselves(), *more]

    def _files(self) -> list[str]:
        """The database files of the board, wherever they are."""
        if "://" in self.address:
            return []
        return [os.path.abspath(self.address) + ending for ending in _BESIDE]


def _network_of_scripts(profile: WorkerProfile) -> bool | None:
    """Whether scripts have the network; not when the worker itself is limited to certain hosts."""
    agent = CATALOG.get(profile.cli)
    bounded = bool(profile.ask_network) or (agent is not None and agent.reach is not None)
    return False if profile.network is None and bounded else profile.network


def _hosts_of_scripts(profile: WorkerProfile) -> AllowedHosts | None:
    named = profile.allowed_hosts
    if named is None or not profile.ask_network:
        return named
    reaches_any = named.allow or profile.presets
    return msgspec.structs.replace(named, ask_timeout_ms=msgspec.UNSET) if reaches_any else None
