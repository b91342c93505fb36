"""Asks the real Claude Code and the real OpenCode which values are in force; neither needs a login for it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.agentconfig.decision import AgentName
from holdfast.errors import InvalidRequest, NotFound, OperationFailed, SandboxUnavailable

ANSWER_S: Final = 60.0  # they start in two seconds; on a machine that does much else, many of those
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024  # all settings of all layers, many times over

MAX_ERROR_BYTES: Final = 64 * 1024  # the first line of it is shown
MAX_SETTINGS_BYTES: Final = 4 * 1024 * 1024  # of one file; more is no configuration

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_NOT_COPIED: Final = frozenset({"node_modules", "plugin", "plugins", ".git"})
_ASK: Final = {"type": "control_request", "request_id": "1", "request": {"subtype": "get_settings"}}
_STREAM: Final = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
_NO_SANDBOX: Final = "sandbox_required_unavailable"


def find(agent: AgentName, environ: Mapping[str, str] = os.environ) -> Path:
    """The program: $CLAUDE_BIN or $OPENCODE_BIN, else the first on the PATH.

    Raises:
        NotFound: there is none.
    """
    variable = f"{agent.upper()}_BIN"
    named = environ.get(variable) or shutil.which(agent, path=environ.get("PATH", os.defpath))
    if not named or not os.access(named, os.X_OK):
        raise NotFound(f"no {agent} on the PATH", remedy=f"install it, or set {variable} to the program")
    return Path(named)


def claude_settings(binary: Path, cwd: Path, arguments: Sequence[str]) -> dict[str, object]:
    """What Claude Code answers to `get_settings` in `cwd` with these options; no session is kept.

    Raises:
        SandboxUnavailable: it does not start, since its sandbox cannot work here or its settings are wrong.
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
    """Variables with which OpenCode reads a copy of the user's settings, and keeps its state beside that.

    It writes into the settings that it reads, at every start; those of the user stay as they are.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-check-", ignore_cleanup_errors=True) as scratch:
        if own.is_dir():
            try:
                shutil.copytree(own, f"{scratch}/CONFIG/opencode", ignore=_not_settings)
            except (OSError, shutil.Error) as exc:
                raise OperationFailed(f"cannot copy {own}: {exc}", remedy=f"ls -lR {str(own)!r}") from None
        yield {f"XDG_{name}_HOME": f"{scratch}/{name}" for name in ("CONFIG", "DATA", "STATE", "CACHE")}


def opencode_config(binary: Path, cwd: Path, variables: Mapping[str, str], *what: str) -> dict[str, object]:
    """What `opencode debug` prints.

    Raises:
        InvalidRequest: it refuses the configuration.
        OperationFailed: it does not answer.
    """
    quiet = dict.fromkeys(("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"), "1")
    silent = {f"OPENCODE_DISABLE_{name}": value for name, value in quiet.items()}
    # Without plug-ins: they are programs, and would be fetched and run.
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
    """Its output and its errors; the whole group of processes is gone afterwards."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own program
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env={**os.environ, **variables},
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as exc:
            raise OperationFailed(f"cannot start {command[0]}: {exc.strerror}") from None
        try:
            process.communicate(said, timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            raise OperationFailed(
                f"{command[0]} does not answer in {ANSWER_S:.0f} s", remedy=f"{command[0]} --version"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        return output.read(MAX_ANSWER_BYTES), errors.read(MAX_ERROR_BYTES)


def _first_line(errors: bytes) -> str:
    """Which file it is about; the lines after it may quote what is in it."""
    text = _COLOUR.sub("", errors.decode("utf-8", "replace")).strip()
    return text.partition("\n")[0] or "no reason given"


def _not_settings(folder: str, names: list[str]) -> set[str]:
    """What is left out of a copy: packages, plug-ins, and what is too large to be read as settings."""
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
