"""The real Codex CLI as a client: where it is, how it is configured, how one run of it goes."""

import asyncio
import json
import os
import pwd
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.patience import patient
from tests.support.servers import isolated_environment
from tools.get_codex import VERSION, installed

RUN_LIMIT_S: Final = patient(40.0)
LEAVE_LIMIT_S: Final = patient(20.0)  # for the app server, once its input has ended
MAX_LINE_BYTES: Final = 16 * 1024 * 1024  # one message of the app server may hold a whole tool output
PROMPT: Final = "Run the script."


def find_codex() -> Path | None:
    """CODEX_BIN if set, else what `python -m tools.get_codex` installed."""
    named = os.environ.get("CODEX_BIN")
    return Path(named) if named else installed()


def requires_codex() -> Path:
    """The binary; without it the test is skipped, and in CI it fails."""
    found = find_codex()
    if found is not None and found.is_file():
        return found
    reason = f"NO CODEX CLI: interoperability is NOT tested; `python -m tools.get_codex` installs {VERSION}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def requires_its_shell() -> None:
    """A login shell in which the reference keeps keys outside; with another its server does not offer to."""
    shell = Path(pwd.getpwuid(os.getuid()).pw_shell)
    if shell.name not in ("bash", "zsh"):
        pytest.skip(f"the login shell is {shell}, with which the Codex CLI's server masks no keys")


class CodexClient:
    """A Codex CLI with a home and a workspace of its own below `base`."""

    def __init__(self, binary: Path, base: Path) -> None:
        self.workspace = base / "workspace"
        self.variables: dict[str, str] = {}  # of its environment, besides the usual
        self._binary = binary
        self._home = base / "client"
        self._profile: str | None = None
        self.workspace.mkdir()
        (self._home / ".codex").mkdir(parents=True)

    def configure(
        self, provider_url: str, *, features: Iterable[str] = (), more: str = "", profile: str | None = None
    ) -> None:
        """Write config.toml: the scripted model, nothing that calls home, and `more` at the end.

        `profile` names permissions of `more`, which hold instead of a sandbox.
        """
        self._profile = profile
        lines = [
            *([] if profile is None else [f'default_permissions = "{profile}"']),
            'model = "gpt-5.5"',  # a name whose built-in description offers shell, patch and image tools
            'model_provider = "script"',
            "check_for_update_on_startup = false",
            "suppress_unstable_features_warning = true",
            "[analytics]",
            "enabled = false",
            "[model_providers.script]",
            'name = "script"',
            f'base_url = "{provider_url}"',
            'env_key = "SCRIPT_KEY"',
            'wire_api = "responses"',
            "request_max_retries = 0",
            "stream_max_retries = 0",
            "[features]",
            *(f"{name} = true" for name in features),
            more,
        ]
        (self._home / ".codex" / "config.toml").write_text("\n".join(lines), "utf-8")

    async def execute(
        self,
        exec_server_url: str | None = None,
        *,
        sandbox: str = "danger-full-access",
        limit_s: float = RUN_LIMIT_S,
    ) -> None:
        """`codex exec`, with full access unless told otherwise, from the prompt to its end.

        Without an address it takes the environment that its own files name.

        Raises:
            AssertionError: it did not end in time, or not with status 0.
        """
        held = ("-s", sandbox) if self._profile is None else ()
        await self._to_end(*held, exec_server_url=exec_server_url, limit_s=limit_s)

    async def execute_confined(self, *options: str) -> list[dict[str, Any]]:
        """`codex exec` in its own `workspace-write` sandbox, to its end; what it says held in its turns.

        Raises:
            AssertionError: as `execute`.
        """
        await self._to_end("-s", "workspace-write", *options)
        rollouts = (self._home / ".codex" / "sessions").rglob("*.jsonl")
        lines = [json.loads(line) for path in rollouts for line in path.read_text("utf-8").splitlines()]
        return [line["payload"] for line in lines if line["type"] == "turn_context"]

    async def _to_end(
        self, *more: str, exec_server_url: str | None = None, limit_s: float = RUN_LIMIT_S
    ) -> None:
        options = ["--json", "--skip-git-repo-check", "-C", str(self.workspace), *more]
        process = await self._spawn("exec", *options, PROMPT, stdin=False, exec_server_url=exec_server_url)
        try:
            async with asyncio.timeout(limit_s):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            raise AssertionError(f"codex exec did not end in {limit_s:.0f} s") from None
        finally:
            _kill(process)
        assert process.returncode == 0, f"codex exec: {stdout[-1000:]!r} {stderr[-1000:]!r}"

    @asynccontextmanager
    async def app_server(self) -> AsyncIterator["AppServer"]:
        """`codex app-server`, past its handshake."""
        process = await self._spawn("app-server", stdin=True)
        try:
            async with asyncio.TaskGroup() as readers:
                server = AppServer(process)
                readers.create_task(server.read())
                readers.create_task(server.discard_errors())
                async with asyncio.timeout(RUN_LIMIT_S):
                    about = {"name": "interop", "title": "interop", "version": "1"}
                    experimental = {"experimentalApi": True}
                    await server.call("initialize", {"clientInfo": about, "capabilities": experimental})
                    await server.tell("initialized")
                    yield server
                server.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_LIMIT_S):
                        await process.wait()
                _kill(process)
        finally:
            _kill(process)
            await process.wait()

    async def _spawn(
        self, *arguments: str, stdin: bool, exec_server_url: str | None = None
    ) -> asyncio.subprocess.Process:
        env = isolated_environment(self._home) | {"SCRIPT_KEY": "unused"} | self.variables
        if exec_server_url is not None:
            env["CODEX_EXEC_SERVER_URL"] = exec_server_url
        return await asyncio.create_subprocess_exec(
            str(self._binary), *arguments,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=MAX_LINE_BYTES,
            env=env, cwd=self.workspace, start_new_session=True,
        )  # fmt: skip


class AppServer:
    """JSON-RPC lines over the pipes of `codex app-server`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._news = asyncio.Event()
        self.notifications: list[str] = []
        self.decisions: list[str] = []  # what the next questions are answered with; then each is declined
        self.questions: list[dict[str, Any]] = []

    async def tell(self, method: str) -> None:
        await self._send({"method": method})

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result; an error is a failed assertion."""
        number = len(self._asked) + 1
        self._asked[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        reply = await self._asked[number]
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    async def start_thread(self, environment: str, workspace: Path, **more: object) -> str:
        """A thread with full access in `environment`; its id."""
        where = [{"environmentId": environment, "cwd": str(workspace)}]
        params = {"cwd": str(workspace), "environments": where, "sandbox": "danger-full-access"}
        result = await self.call("thread/start", {**params, "approvalPolicy": "never", **more})
        thread: str = result["thread"]["id"]
        return thread

    async def take_turn(self, thread: str) -> None:
        """One user message, until the model has nothing more to do."""
        done = self.notifications.count("turn/completed")
        await self.call("turn/start", {"threadId": thread, "input": [{"type": "text", "text": PROMPT}]})
        await self.until(lambda: self.notifications.count("turn/completed") > done)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def read(self) -> None:
        while line := await self._stdout.readline():
            message = json.loads(line)
            if "method" in message and "id" in message:
                self.questions.append(message)
                decision = self.decisions.pop(0) if self.decisions else "decline"
                await self._send({"id": message["id"], "result": {"decision": decision}})
            elif "method" in message:
                self.notifications.append(message["method"])
                self._news.set()
            else:
                self._asked[message["id"]].set_result(message)

    async def discard_errors(self) -> None:
        while await self._stderr.read(65536):
            pass

    def close(self) -> None:
        self._stdin.close()

    async def _send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        await self._stdin.drain()


def _kill(process: asyncio.subprocess.Process) -> None:
    """End what is left of a process group that we started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
