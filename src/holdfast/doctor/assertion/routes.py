"""The routes by which an agent runs a command, each really taken: Codex's two, and `holdfast exec`.

Codex gets a temporary home with a copy of the configuration, because it writes a dozen files into every home
that it is started with, and the user's real home must not be changed.
"""

import contextlib
import hmac
import json
import os
import re
import secrets
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from holdfast.agentconfig import clients
from holdfast.agentconfig.files import MAX_CONFIG_BYTES
from holdfast.agentconfig.settings import Key, flatten
from holdfast.doctor.assertion.witness import PREFIX, Questions, temporary
from holdfast.errors import HoldfastError
from holdfast.local.owned import owned_program
from holdfast.sandbox.policy.paths import within

MAX_BODY_BYTES: Final = 16 * 1024 * 1024  # Codex's instructions are 40 KiB; with a user's, much more
MAX_TURNS: Final = 8  # a client that asks again and again does not accept the answer
IDLE_S: Final = 30.0  # of a connection; the client has its own limit
CALL: Final = "holdfast"

_POLL_S: Final = 0.05
_YIELD_MS: Final = 30_000  # the longest that the client waits for a command before it asks the model
_USAGE: Final = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}

# How each generation of the client takes a command; the first one that it offers is used.
_SHELLS: Final[Mapping[str, Callable[[str], dict[str, object]]]] = {
    "exec_command": lambda script: {"cmd": script, "yield_time_ms": _YIELD_MS},
    "shell_command": lambda script: {"command": script, "timeout_ms": _YIELD_MS},
    "shell": lambda script: {"command": ["sh", "-c", script], "timeout_ms": _YIELD_MS},
}
COMMAND_EXEC: Final = "app-server command/exec"
EXEC: Final = "codex exec"
OURS: Final = "holdfast exec"
RUN_S: Final = 45.0  # for `codex exec`, besides the command itself; it takes half a second
MAX_TEXT: Final = 16 * 1024  # characters of an agent's output, kept as evidence

_TOKEN: Final = "HOLDFAST_ASSERTION"  # noqa: S105 - a variable's name, one that no filter of secrets takes away
_MODEL: Final = "gpt-5.5"  # a model name for which a shell is offered; an unknown name works as well
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
# What Codex itself writes into a home; a link there would lead into the real one.
_STATE: Final = re.compile(
    r"config\.toml|auth\.json|.*\.sqlite.*|.*\.jsonl|tmp|\.tmp|logs?|sessions|archived_sessions|skills|plugins"
    r"|memories|rules|cache|history.*|hooks\.json|installation_id|version\.json|models_cache\.json|\..*"
)
MAX_OUTPUT: Final = 1 << 20  # of each stream; the rest is read and dropped
_READ: Final = 65536


class StubProvider:
    """A model provider that asks for one command.

    `output` is the answer of the command's tool, None before that; `offered` are the tools of the client.
    """

    def __init__(self, script: str) -> None:
        self.token: Final = secrets.token_urlsafe(32)
        self.url = ""
        self.output: str | None = None
        self.offered: tuple[str, ...] = ()
        self.turns = 0
        self._script = script
        self._lock = threading.Lock()

    def knows(self, authorization: str) -> bool:
        return hmac.compare_digest(authorization.encode(), f"Bearer {self.token}".encode())

    def answer(self, body: bytes) -> bytes:
        """The events of one turn.

        Raises:
            ValueError: it is not a request, or the turns are used up.
        """
        request = json.loads(body)
        if not isinstance(request, dict):
            raise ValueError
        with self._lock:
            self.turns += 1
            if self.turns > MAX_TURNS:
                raise ValueError
            item = self._item(request)
        events: list[dict[str, object]] = [
            {"type": "response.created", "response": {"id": "resp"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "resp", "usage": _USAGE}},
        ]
        return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()

    def _item(self, request: Mapping[str, Any]) -> dict[str, object]:
        for item in _objects(request.get("input")):
            if item.get("call_id") == CALL and str(item.get("type")).endswith("_call_output"):
                self.output = _text(item.get("output"))
        self.offered = tuple(
            str(tool.get("name") or tool.get("type")) for tool in _objects(request.get("tools"))
        )
        tool = next((name for name in _SHELLS if name in self.offered), None)
        if self.output is None and tool is not None:
            arguments = json.dumps(_SHELLS[tool](self._script))
            return {"type": "function_call", "call_id": CALL, "name": tool, "arguments": arguments}
        said = [{"type": "output_text", "text": "done"}]
        return {"type": "message", "role": "assistant", "id": "msg", "content": said}


@contextlib.contextmanager
def playing(script: str) -> Iterator[StubProvider]:
    """Serve a stub on a free port of the loopback address; requests without its token are refused."""
    stub = StubProvider(script)

    class _Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_S

        def do_POST(self) -> None:
            size = self.headers.get("content-length", "")
            if not stub.knows(self.headers.get("authorization", "")):
                self._send(401)
            elif not self.path.endswith("/responses"):
                self._send(404)
            elif not size.isdecimal() or int(size) > MAX_BODY_BYTES:
                self._send(413)
            else:
                try:
                    self._send(200, stub.answer(self.rfile.read(int(size))))
                except ValueError:
                    self._send(400)

        def do_GET(self) -> None:
            self._send(404)

        def _send(self, status: int, body: bytes = b"") -> None:
            self.close_connection = status != 200  # an unread body would be taken for the next request
            self.send_response(status)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class _Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            pass  # a client that was killed does not wait for its answer

    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(output: object) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        return _text(output.get("content"))
    return "".join(str(part.get("text", "")) for part in _objects(output))


@dataclass(frozen=True, slots=True)
class CodexLaunch:
    """An agent as it will be started."""

    binary: Path
    home: Path
    cwd: Path
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteRun:
    """The result of one run; `ended` is False if that is unknown: it hung, or the model was never called."""

    route: str
    seconds: float
    ended: bool
    output: str = ""
    said: str = ""
    exit_code: int | None = None
    warnings: tuple[str, ...] = ()
    effective: Mapping[Key, object] = field(default_factory=dict)
    fingerprint: str | None = None  # of the failure, where it need not be guessed
    enforcement: Mapping[str, object] | None = None  # what confined it, if reported


@contextlib.contextmanager
def copied_home(home: Path, place: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Make a home with a copy of another's configuration, below temporary files if that one is.

    Files that the configuration names in its own directory are linked, and so is `.env`.

    Raises:
        OSError: the configuration cannot be read.
    """
    temporary_folder = temporary(environ)
    if within(os.path.realpath(home), temporary_folder):
        place = Path(temporary_folder)  # where Codex behaves differently
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}home-", dir=place))
    try:
        text = b""
        with contextlib.suppress(FileNotFoundError), (home / "config.toml").open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES)
            (folder / "config.toml").write_bytes(text)
            (folder / "config.toml").chmod(0o600)
        for entry in os.scandir(home):
            named = not _STATE.fullmatch(entry.name) and entry.name.encode() in text
            if named or entry.name == ".env":
                (folder / entry.name).symlink_to(os.path.abspath(entry.path))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def move_state(launch: CodexLaunch, copy: Path) -> CodexLaunch:
    """The launch with its state in the copy, even if the configuration has other places for the state."""
    text = ""
    with contextlib.suppress(OSError):
        text = (copy / "config.toml").read_text("utf-8", "replace")
    moved = [f'{key}="{copy}/{key}"' for key in ("sqlite_home", "log_dir") if key in text]
    return replace(launch, overrides=(*launch.overrides, *moved))


def command_exec(launch: CodexLaunch, home: Path, questions: Questions) -> RouteRun:
    """Run the questions through an app server, as every task is started."""
    began = time.monotonic()
    warnings: tuple[str, ...] = ()
    effective: Mapping[Key, object] = {}
    request = {
        "command": list(questions.argv()),
        "cwd": str(launch.cwd),
        "timeoutMs": questions.seconds * 1000,
    }
    try:
        with clients.app_server(
            launch.binary,
            home,
            launch.cwd,
            _flags(launch),
            seconds=clients.CODEX_ANSWER_S + questions.seconds,
        ) as server:
            told = server.ask("config/read", {"includeLayers": False, "cwd": str(launch.cwd)}).get("result")
            effective = dict(flatten(told.get("config"))) if isinstance(told, dict) else {}
            answer = server.ask("command/exec", request)
            warnings = tuple(server.warnings)
    except HoldfastError as exc:
        return RouteRun(COMMAND_EXEC, time.monotonic() - began, True, said=str(exc))
    result = answer.get("result")
    took = time.monotonic() - began
    if not isinstance(result, dict):
        said = json.dumps(answer.get("error"))[:MAX_TEXT]
        return RouteRun(COMMAND_EXEC, took, True, said=said, warnings=warnings, effective=effective)
    code = result.get("exitCode")
    return RouteRun(
        COMMAND_EXEC,
        took,
        True,
        str(result.get("stdout")),
        str(result.get("stderr"))[-MAX_TEXT:],
        code if isinstance(code, int) else None,
        warnings,
        effective,
    )


def codex_exec(
    launch: CodexLaunch,
    home: Path,
    questions: Questions,
    effective: Mapping[Key, object],
    environ: Mapping[str, str],
) -> RouteRun:
    """Run the questions through `codex exec` with our stub model.

    Programs that Codex's configuration names are disabled.
    """
    began = time.monotonic()
    servers = sorted({key[1] for key in effective if key[:1] == ("mcp_servers",) and len(key) > 1})
    with playing(shlex.join(questions.argv())) as stub:
        provider = (
            f'{{name="holdfast",base_url="{stub.url}",env_key="{_TOKEN}",wire_api="responses",'
            "request_max_retries=0,stream_max_retries=0}"
        )
        settings = [
            f"model_providers.holdfast={provider}",
            'model_provider="holdfast"',
            "features.unbounded_connection_retries=false",
            "check_for_update_on_startup=false",
            "analytics.enabled=false",
            "notify=[]",
            *(f"mcp_servers.{name}.enabled=false" for name in servers if _PLAIN.fullmatch(name)),
        ]
        argv = [
            *(str(launch.binary), "exec", "--json", "--ephemeral", "--ignore-rules", "--skip-git-repo-check"),
            *("-C", str(launch.cwd), "-m", _MODEL, *_flags(launch)),
            *(part for setting in settings for part in ("-c", setting)),
            "Run the command.",
        ]
        own = {**environ, "CODEX_HOME": str(home), _TOKEN: stub.token}
        try:
            ended = run_program(argv, cwd=launch.cwd, environ=own, seconds=RUN_S + questions.seconds)
        except OSError as exc:
            return RouteRun(EXEC, time.monotonic() - began, True, said=f"cannot start it: {exc.strerror}")
    took = time.monotonic() - began
    if stub.output is not None:
        return RouteRun(EXEC, took, True, stub.output, stub.output[-MAX_TEXT:], ended.code)
    if ended.code and not stub.turns:
        return RouteRun(EXEC, took, True, said=ended.err[-MAX_TEXT:], exit_code=ended.code)
    why = (
        "it did not end in time"
        if ended.code is None
        else "it never asked the model"
        if not stub.turns
        else f"it offers no shell that is known here, but {', '.join(stub.offered) or 'nothing'}"
    )
    return RouteRun(EXEC, took, False, said=f"{why}\n{ended.err[-MAX_TEXT:]}", exit_code=ended.code)


def holdfast_exec(
    cwd: Path, flags: Sequence[str], questions: Questions, environ: Mapping[str, str]
) -> RouteRun:
    """Run the questions through our own sandbox."""
    began = time.monotonic()
    own = [sys.executable, "-P", "-m", "holdfast", "exec", "--json", *flags, "--", *questions.argv()]
    ended = run_program(own, cwd=cwd, environ=environ, seconds=RUN_S + questions.seconds)
    took = time.monotonic() - began
    said, fingerprint, held = ended.err, None, None
    with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):
        told = json.loads(ended.err.splitlines()[-1])
        held, error = told["enforcement"], told["error"]
        said, fingerprint = str(error["message"]), error["fingerprint"]
    ran = RouteRun(OURS, took, ended.code is not None, ended.out, said[-MAX_TEXT:], ended.code)
    return replace(ran, fingerprint=fingerprint, enforcement=held)


def _flags(launch: CodexLaunch) -> list[str]:
    return [part for override in launch.overrides for part in ("-c", override)]


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended; `code` is None if it had to be killed."""

    code: int | None
    out: str
    err: str


def run_program(argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], seconds: float) -> Ended:
    """Run a program without input.

    Raises:
        OSError: it cannot be started.
    """
    until = time.monotonic() + seconds
    with owned_program(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        cwd=cwd,
    ) as process:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("asked for pipes")
        kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        out, err = kept.values()
        code: int | None = None
        with selectors.DefaultSelector() as selector:
            for file in kept:
                selector.register(file, selectors.EVENT_READ)
            while selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    data = os.read(key.fd, _READ)
                    if data:
                        kept[key.fd] += data[: max(0, MAX_OUTPUT - len(kept[key.fd]))]
                    else:
                        selector.unregister(key.fd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(max(0.0, until - time.monotonic()))
    return Ended(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
