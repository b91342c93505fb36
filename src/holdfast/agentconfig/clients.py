"""Query the real agent CLIs for the values in force, without a login, and have Codex validate a file."""

import contextlib
import json
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from holdfast.agentconfig.decision import PACKAGES, Admin, AgentName, Version, parse_version
from holdfast.agentconfig.environments import FILE as ENVIRONMENTS
from holdfast.agentconfig.settings import Effective, flatten
from holdfast.errors import InvalidRequest, NotFound, OperationFailed, SandboxUnavailable
from holdfast.local.atomicfile import replace_file
from holdfast.local.owned import owned_program

ANSWER_S: Final = 60.0  # they start in two seconds, but take much longer on a busy machine
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024  # larger than all settings of all layers

MAX_ERROR_BYTES: Final = 64 * 1024  # only its first line is shown
MAX_SETTINGS_BYTES: Final = 4 * 1024 * 1024  # of one file; a larger one is no configuration

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_NOT_COPIED: Final = frozenset({"node_modules", "plugin", "plugins", ".git"})
_ASK: Final = {"type": "control_request", "request_id": "1", "request": {"subtype": "get_settings"}}
_STREAM: Final = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
_NO_SANDBOX: Final = "sandbox_required_unavailable"
CODEX_ANSWER_S: Final = 20.0  # it takes a tenth of a second, but much longer on a busy machine
MAX_WARNINGS: Final = 64  # one for each file that it reads, which are few
SCRATCH: Final = ".holdfast-check-"

_READ: Final = 65536


def find(agent: AgentName, environ: Mapping[str, str] = os.environ) -> Path:
    """Find the program: $CODEX_BIN, $CLAUDE_BIN or $OPENCODE_BIN, else the first on the PATH.

    Raises:
        NotFound: there is none.
    """
    variable = f"{agent.upper()}_BIN"
    how = f"npm install -g {PACKAGES[agent]}"
    named = environ.get(variable) or shutil.which(agent, path=environ.get("PATH", os.defpath))
    if not named or not os.access(named, os.X_OK):
        raise NotFound(f"no {agent} on the PATH", remedy=f"{how}, or set {variable} to the program")
    return Path(named)


def find_if_any(agent: AgentName) -> Path | None:
    """Like `find`, but None if there is none."""
    try:
        return find(agent)
    except NotFound:
        return None


def claude_settings(binary: Path, cwd: Path, arguments: Sequence[str]) -> dict[str, object]:
    """Return Claude Code's answer to `get_settings` in `cwd` with these options; no session is kept.

    Raises:
        SandboxUnavailable: it does not start, because its sandbox cannot work here or its settings are wrong.
        OperationFailed: it does not answer.
    """
    told, _ = _run(
        [str(binary), *_STREAM, "--no-session-persistence", *arguments],
        cwd,
        {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        json.dumps(_ASK).encode() + b"\n",
    )
    for line in told.splitlines():
        message = _object(line)
        if message.get("startup_failure_reason") == _NO_SANDBOX:
            errors = message.get("errors")
            reason = "; ".join(map(str, errors)) if isinstance(errors, list) else "no reason given"
            raise SandboxUnavailable(
                f"claude does not start: {reason}", remedy="apt install bubblewrap socat; holdfast doctor"
            )
        response = message.get("response")
        answer = response.get("response") if isinstance(response, dict) else None
        if message.get("type") == "control_response" and isinstance(answer, dict):
            return answer
    raise OperationFailed("claude does not tell its settings", remedy="claude --version; then try again")


@contextlib.contextmanager
def opencode_settings(own: Path) -> Iterator[dict[str, str]]:
    """Variables that make OpenCode read a copy of the user's settings, and keep its state beside that copy.

    It writes into the settings that it reads, at every start; the user's own stay unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-check-", ignore_cleanup_errors=True) as scratch:
        if own.is_dir():
            try:
                shutil.copytree(own, f"{scratch}/CONFIG/opencode", ignore=_not_settings)
            except (OSError, shutil.Error) as exc:
                raise OperationFailed(f"cannot copy {own}: {exc}", remedy=f"ls -lR {str(own)!r}") from None
        yield {f"XDG_{name}_HOME": f"{scratch}/{name}" for name in ("CONFIG", "DATA", "STATE", "CACHE")}


def opencode_config(binary: Path, cwd: Path, variables: Mapping[str, str], *what: str) -> dict[str, object]:
    """Return the output of `opencode debug`.

    Raises:
        InvalidRequest: it refuses the configuration.
        OperationFailed: it does not answer.
    """
    quiet = dict.fromkeys(("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"), "1")
    silent = {f"OPENCODE_DISABLE_{name}": value for name, value in quiet.items()}
    # Without plug-ins: they are programs, and would be downloaded and run.
    command = [str(binary), "--pure", "debug", *what]
    told, complaint = _run(command, cwd, {"PWD": str(cwd), **silent, **variables}, b"")
    answer = _object(told)
    if not answer:
        raise InvalidRequest(
            f"opencode does not accept its configuration, or does not start: {_first_line(complaint)}",
            remedy="opencode debug config says what is wrong; correct that file",
        )
    return answer


def _run(command: list[str], cwd: Path, variables: Mapping[str, str], said: bytes) -> tuple[bytes, bytes]:
    """Run a command; return its output and its errors. Its whole process group is ended afterwards."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": errors}
        try:
            with owned_program(command, env={**os.environ, **variables}, cwd=cwd, **streams) as process:
                process.communicate(said, timeout=ANSWER_S)
        except OSError as exc:
            raise OperationFailed(f"cannot start {command[0]}: {exc.strerror}") from None
        except subprocess.TimeoutExpired:
            raise OperationFailed(
                f"{command[0]} does not answer in {ANSWER_S:.0f} s", remedy=f"{command[0]} --version"
            ) from None
        output.seek(0)
        errors.seek(0)
        return output.read(MAX_ANSWER_BYTES), errors.read(MAX_ERROR_BYTES)


def _first_line(errors: bytes) -> str:
    """The first line, which names the file; the lines after it may quote its content."""
    text = _COLOUR.sub("", errors.decode("utf-8", "replace")).strip()
    return text.partition("\n")[0] or "no reason given"


def _not_settings(folder: str, names: list[str]) -> set[str]:
    """What a copy leaves out: packages, plug-ins, and files too large to be settings."""
    found = {name for name in names if name in _NOT_COPIED}
    for name in set(names) - found:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                continue
            if os.path.isfile(path) and os.path.getsize(path) <= MAX_SETTINGS_BYTES:
                continue
        found.add(name)
    return found


def _object(data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def version(binary: Path) -> Version | None:
    """The version of a program; None if it prints none in time."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program
            [str(binary), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CODEX_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stdout[:_READ].decode("utf-8", "replace"))


def read_codex_requirements(binary: Path) -> Admin:
    """The requirements of this machine's administrators, which do not depend on the home; no home is changed.

    Raises:
        OperationFailed: Codex does not start, or does not answer in time.
    """
    with (
        tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True) as scratch,
        app_server(binary, Path(scratch), Path(scratch), ()) as server,
    ):
        return _admin(server.call("configRequirements/read", None).get("requirements"))


def read_codex_values(binary: Path, home: Path, cwd: Path, overrides: Sequence[str] = ()) -> Effective:
    """The values in force in `cwd` with this home and these `-c` overrides, as an app server reads them.

    Raises:
        OperationFailed: it does not start, or does not answer in time.
        InvalidRequest: it refuses the configuration.
    """
    arguments = [part for override in overrides for part in ("-c", override)]
    with app_server(binary, home, cwd, arguments) as server:
        told = server.call("config/read", {"includeLayers": False, "cwd": str(cwd)})
    origins = told.get("origins")
    named = origins.items() if isinstance(origins, dict) else ()
    return Effective(dict(flatten(told.get("config"))), {key: _layer(layer) for key, layer in named})


def validate_codex(binary: Path, home: Path, text: str) -> None:
    """Have Codex read this text, in a temporary home inside `home`.

    A Codex that can report its start-up configuration (0.151 or so) reads it strictly and refuses unknown
    keys.

    Raises:
        InvalidRequest: it refuses it; the message has its line and column.
        OperationFailed: it does not answer.
    """
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=home, ignore_cleanup_errors=True) as scratch:
        (Path(scratch) / "config.toml").write_bytes(text.encode())
        answer = _startup(binary, scratch)
        if answer is None:
            with app_server(
                binary, Path(scratch), Path(scratch), ()
            ) as server:  # a strict one would not start
                answer = server.ask("config/read", {"includeLayers": False})
        detail = _complaint(answer, scratch)
    if detail:
        raise InvalidRequest(
            f"codex refuses the new file, which was not written: {detail}",
            remedy="correct that line by hand, then try again",
        )


def validate_codex_environments(binary: Path, home: Path, text: str) -> None:
    """Have Codex start with this as its `environments.toml`, in a temporary home as `validate_codex` does.

    Raises:
        InvalidRequest: it does not start; its message may quote the file, so only the first line is reported.
        OperationFailed: it does not answer.
    """
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=home, ignore_cleanup_errors=True) as scratch:
        replace_file(Path(scratch) / ENVIRONMENTS, text.encode())
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own program
                [str(binary), "app-server"],
                stdin=subprocess.DEVNULL,  # so it ends as soon as it has read its files
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=CODEX_ANSWER_S,
                check=False,
                env={**os.environ, "CODEX_HOME": scratch},
                cwd=scratch,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise OperationFailed(
                f"{binary} does not read the new environments: {exc}", remedy="codex --version"
            ) from None
        if done.returncode:
            detail = _first_line(done.stderr).replace(f"{scratch}/", "")
            raise InvalidRequest(
                f"codex refuses the new environments.toml, which was not written: {detail}",
                remedy="correct the file by hand, then try again",
            )


def _startup(binary: Path, scratch: str) -> dict[str, Any] | None:
    """Codex's report on the configuration of this home at its start; None if it lacks that option."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program
            [str(binary), "app-server", "--print-startup-config", "--strict-config"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CODEX_ANSWER_S,
            check=False,
            env={**os.environ, "CODEX_HOME": scratch},
            cwd=scratch,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _complaint(answer: Mapping[str, Any], scratch: str) -> str:
    """Codex's complaint about the text itself; a missing file beside it is no fault of the text."""
    error = answer.get("error")
    if error is None:
        return ""
    said = error if isinstance(error, dict) else {}
    data = said.get("data")
    told = data.get("detail") if isinstance(data, dict) else None
    detail = str(told or said.get("message") or "no reason given")
    about_text = f"{scratch}/config.toml:" in detail
    if scratch in detail and not about_text:
        return ""
    return detail.replace(f"{scratch}/", "")


def _layer(told: object) -> str:
    """Describe `{"name": {"type": "project", "dotCodexFolder": ...}}` for people."""
    name = told.get("name") if isinstance(told, dict) else None
    if not isinstance(name, dict):
        return ""
    place = next((str(value) for key, value in name.items() if key != "type" and isinstance(value, str)), "")
    return f"{name.get('type')} {place}".strip()


def _admin(required: object) -> Admin:
    if not isinstance(required, dict):
        return Admin()
    return Admin(
        modes=_words(required.get("allowedSandboxModes")),
        approvals=_words(required.get("allowedApprovalPolicies")),
        profiles=bool(required.get("allowedPermissionProfiles")),
    )


def _words(value: object) -> tuple[str, ...] | None:
    return tuple(str(word) for word in value) if isinstance(value, list) else None


@contextlib.contextmanager
def app_server(
    binary: Path, home: Path, cwd: Path, arguments: Sequence[str], *, seconds: float = CODEX_ANSWER_S
) -> Iterator["AppServer"]:
    """A running app server after its handshake; it ends with the block.

    Raises:
        OperationFailed: it does not start, or does not answer in time; with its own reason if it gave one.
    """
    with contextlib.ExitStack() as stack:
        try:
            told = stack.enter_context(
                tempfile.TemporaryFile(dir=home)
            )  # Codex needs this directory in any case
            process = stack.enter_context(
                owned_program(
                    [str(binary), "app-server", *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=told,
                    env={**os.environ, "CODEX_HOME": str(home)},
                    cwd=cwd,
                )
            )
        except OSError as exc:
            raise OperationFailed(
                f"cannot start {binary}: {exc.strerror}", remedy="codex --version"
            ) from None
        if process.stdin is None or process.stdout is None:
            raise AssertionError("asked for pipes")
        server = AppServer(process.stdin, process.stdout, told, seconds)
        about = {"name": "holdfast", "title": "holdfast", "version": "1"}
        server.call("initialize", {"clientInfo": about})
        server.send({"method": "initialized"})
        yield server


class AppServer:
    """Sends one request at a time over pipes, all of them until one deadline.

    `warnings` are those that it sent about its configuration meanwhile.
    """

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], told: IO[bytes], seconds: float) -> None:
        self.warnings: list[str] = []
        self._stdin, self._stdout, self._told = stdin, stdout, told
        self._until = time.monotonic() + seconds
        self._heard = bytearray()
        self._asked = 0

    def send(self, message: Mapping[str, object]) -> None:
        try:
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            raise self._make_silence() from None

    def call(self, method: str, params: object) -> dict[str, Any]:
        """Send a request and return its result."""
        message = self.ask(method, params)
        if "error" in message:
            raise InvalidRequest(
                f"codex refuses the configuration: {message['error'].get('message')}",
                remedy="correct the file it names, then try again",
            )
        result = message.get("result")
        return result if isinstance(result, dict) else {}

    def ask(self, method: str, params: object) -> dict[str, Any]:
        """Send a request and return the answer, a result or an error."""
        self._asked += 1
        self.send({"id": self._asked, "method": method, "params": params})
        while True:
            message = self._message()
            if message.get("id") == self._asked and "method" not in message:
                return message
            if message.get("method") == "configWarning" and len(self.warnings) < MAX_WARNINGS:
                said = message.get("params")
                words = [said.get("summary"), said.get("details")] if isinstance(said, dict) else []
                self.warnings.append(" ".join(str(word) for word in words if word))

    def _message(self) -> dict[str, Any]:
        while b"\n" not in self._heard:
            data = self._more()
            if not data or len(self._heard) > MAX_ANSWER_BYTES:
                raise self._make_silence()
            self._heard += data
        line, _, rest = self._heard.partition(b"\n")
        self._heard = rest
        try:
            message = json.loads(line)
        except ValueError:
            raise self._make_silence() from None
        return message if isinstance(message, dict) else {}

    def _more(self) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, self._until - time.monotonic())):
                return b""
        return os.read(self._stdout.fileno(), _READ)

    def _make_silence(self) -> OperationFailed:
        lines = os.pread(self._told.fileno(), _READ, 0).decode("utf-8", "replace").splitlines()
        reason = next(
            (f": {line.removeprefix('Error: ')}" for line in lines if line.startswith("Error: ")), ""
        )
        return OperationFailed(
            f"codex app-server does not answer{reason}",
            remedy="codex --version; codex doctor; then try again",
        )
