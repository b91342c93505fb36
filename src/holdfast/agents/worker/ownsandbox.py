"""CLIs that keep their own sandbox: where their commands run instead, and what those may access.

The CLI itself is confined like every worker, and always reaches its model. Each of its commands goes over a
bridge to an executor of ours outside of that sandbox (ADR 18). A command may access at most what the worker
may, and of the network only what the request asks for. It has no access to the CLI's own state, to its keys,
or to the executor.
"""

import json
import os
import re
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import light
from holdfast.agents.catalog.agent import Agent, OwnSandbox
from holdfast.agents.worker import bridge
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError
from holdfast.local import rundirs
from holdfast.wire.processes import CommandExecutor

if TYPE_CHECKING:
    from holdfast.agents.worker.launching import WorkerSpec
    from holdfast.agents.worker.reach import WorkerReach
    from holdfast.client.environment import Environment

SOCKET: Final = "exec.sock"
KEY: Final = "exec.key"
VERSION_S: Final = 10.0  # for a CLI to print its version
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class OwnSandboxPlaces:
    """One worker's directory with its executor's socket and token, and its commands' temporary directory."""

    folder: str
    tmp: str
    token: str = field(repr=False)

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, SOCKET)

    def words(self, wish: "WorkerSpec", reach: "WorkerReach") -> dict[str, str]:
        """Return the words for the templates of a record."""
        options = ["-I", "-S", bridge.__file__, self.socket, os.path.join(self.folder, KEY)]
        return {
            "network": "true" if reach.commands_any else "false",
            "writable": json.dumps(wish.writable),
            "work": json.dumps(wish.cwd),
            "bridge": json.dumps(sys.executable),
            "options": json.dumps(options),
        }

    def policy(self, policy: Policy) -> Policy:
        """Extend the policy of the CLI itself so that it reaches its executor."""
        return policy.allow_read(self.folder).allow_socket(self.socket).allow_write(self.tmp)

    def executor(
        self, agent: Agent, wish: "WorkerSpec", policy: Policy, state: str, reach: "WorkerReach"
    ) -> CommandExecutor:
        """Return the executor for its commands; `policy` is that of the CLI."""
        kept = tuple(path for path in policy.wish.sockets if path != self.socket)
        narrower = Policy(light.replace(policy.wish, sockets=kept), policy.root)
        narrower = reach.apply_to_commands(narrower.deny(self.folder).deny(state))
        withheld = () if agent.own_sandbox is None else agent.own_sandbox.withheld
        env = {name: value for name, value in wish.env.items() if name not in withheld}
        return CommandExecutor(
            socket=self.socket,
            token=self.token,
            sandbox=narrower.context(wish.cwd),
            env=env | {"TMPDIR": self.tmp},
        )


def make_places(worker: str, tmp: Path) -> OwnSandboxPlaces:
    """Make the places for a worker that is about to be started; call `remove_places` when it has ended.

    Raises:
        OperationFailed: they cannot be made.
    """
    tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_hex(_TOKEN_BYTES)
    return OwnSandboxPlaces(str(rundirs.put(worker, KEY, token.encode()).parent), str(tmp), token)


def remove_places(worker: str) -> None:
    rundirs.remove(worker)


def find_obstacle(agent: Agent, wish: "WorkerSpec") -> str | None:
    """Return why a worker of this request cannot keep its CLI's own sandbox; None if no reason is known."""
    if agent.own_sandbox is None:
        return f"{agent.name} has none that we could run commands for"
    if not wish.own_sandbox:
        return "as asked"
    if wish.unconfined:
        return "it is not confined"
    if wish.host is not None:
        return "it runs on another machine"
    if not wish.relocate:
        return "its state is not relocated, so its settings are the user's own"
    if wish.acp:
        return "it is led over ACP"
    return None


def judge_version(own: OwnSandbox, version: tuple[int, ...] | None) -> str | None:
    """Return why a CLI of this version cannot keep its own sandbox; None if it can."""
    if version is None:
        return "its version cannot be found out"
    if version < own.least:
        return f"its version {_dotted(version)} is older than {_dotted(own.least)}"
    return None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def read_version(text: str) -> tuple[int, ...] | None:
    """Return the first version number in the output of a CLI."""
    found = _VERSION.search(text)
    return None if found is None else tuple(map(int, found[0].split(".")))


class KnownVersions:
    """Caches the versions of programs; a replaced program is asked again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], tuple[int, ...] | None] = {}

    async def find(self, environment: "Environment", program: str, search: str) -> tuple[int, ...] | None:
        """Run `--version` of a program in a read-only sandbox; None if it reports no version."""
        try:
            key = _identify(program)
            if key not in self._known:
                said = await environment.run(
                    [program, "--version"],
                    cwd="/",
                    env={"PATH": search, "HOME": "/"},
                    policy=Policy.read_only(),
                    timeout_s=VERSION_S,
                )
                self._known[key] = read_version(said.stdout.decode("utf-8", "replace"))
            return self._known[key]
        except (HoldfastError, OSError, TimeoutError):
            return None


def _identify(program: str) -> tuple[str, int, int]:
    real = os.path.realpath(program)
    status = os.stat(real)
    return real, status.st_mtime_ns, status.st_ino
