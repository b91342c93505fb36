"""Record what an agent CLI really says, as evidence that the unit tests replay.

python -m tools.record_agent AGENT BINARY PROVIDER [CASE ...] [--limit S]   run it, once a case, and record it
python -m tools.record_agent --claims                           derive the claims of all recordings again

PROVIDER is the address of a scripted model provider that plays a scenario by its name in the path: below
PROVIDER/s/401 every request is answered with 401; see CASES for the others. A recording is the lines of one
run, with what our parsers make of each; look at the difference before it is committed. Paths and keys of this
machine are not in it.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.agents.catalog.agent import launch, provider_secrets, state_files
from holdfast.agents.catalog.catalog import CATALOG, log_parser_of, parser_of, text_parser_of
from holdfast.agents.catalog.known import read_shipped
from holdfast.agents.worker.statefiles import LogTail
from tests.support.wording import in_words

FOLDER: Final = Path(__file__).resolve().parent.parent / "tests" / "unit" / "agents" / "recorded"
LIMIT_S: Final = (
    20.0  # after its first words: what is seen until then is the recording of a run that retries for minutes
)
START_LIMIT_S: Final = 90.0  # until its first words, on a machine with much to do
MAX_LINES: Final = 60  # of one run: a loop says the same again
MAX_TEXT: Final = 300  # characters of one string in an event
MAX_ITEMS: Final = 6  # of one list in an event
PLACE: Final = "/var/tmp"  # noqa: S108 - below the temporary directory codex cannot run a command
MODEL: Final = "mock-model"
KEY: Final = "mock-key-12345678"
_INSTALLED: Final = re.compile(r"(?<![\w.])/[^\s'\"()]*/(node_modules|site-packages|lib/python3\.\d+)/")


KNOWN: Final = {**CATALOG, **read_shipped()}


class Case(NamedTuple):
    scenario: str
    unattended: bool = True
    read_only_home: bool = False
    base: str | None = ""  # of a provider that is not there; None: nobody configured one
    confined: bool = False  # it may write to its own directories only


CASES: Final = {
    "success": Case("hello"),
    "tool": Case("shell"),
    "401": Case("401"),
    "404": Case("404"),
    "429": Case("429"),
    "500": Case("500"),
    "dns": Case("hello", base="http://provider.invalid"),
    "truncated": Case("truncate"),
    "refused": Case("touch", unattended=False),  # one command, which makes a file
    "outside": Case("outside", unattended=False),  # the same, beside the work tree
    "read-only-home": Case("hello", read_only_home=True),
    "denied": Case("denied", confined=True),  # one command, which makes a file in /usr
    "down": Case("hello", base="http://127.0.0.1:9"),
    "logged-out": Case("hello", base=None),
}


def record(name: str, binary: str, provider: str, case: str, limit_s: float = LIMIT_S) -> None:
    """One run of the CLI, kept in its file."""
    with tempfile.TemporaryDirectory(prefix="record-", dir=PLACE) as folder:
        base = CASES[case].base
        if base == "":
            base = f"{provider.rstrip('/')}/s/{CASES[case].scenario}"
        lines, end = _run(name, binary, base, case, Path(folder), limit_s)
        places = {"home": "/home", "state": "/state", "work": "/project"}
        names = [(f"{folder}/{part}", place) for part, place in places.items()]
        names.append((folder, "/beside"))
        # Some names are made from paths: claude calls a folder of transcripts so.
        names += [
            (f"{folder}/work".replace("/", "-"), "-project"),
            (binary, name),
            (str(Path(binary).parent), "/bin"),
        ]
        names += [(re.sub(r"^https?://", "", provider.rstrip("/")), "provider.example")]
        texts = [{**line, "line": _tidy(line["line"], names)} for line in lines[:MAX_LINES]]
    header = {
        "agent": name,
        "version": _version(binary),
        "case": case,
        **end,
        "dropped": len(lines) - len(texts),
    }
    path = FOLDER / name / f"{case}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, header, texts)
    print(f"{path}: {len(texts)} lines, {end}", file=sys.stderr)


def derive(path: Path) -> None:
    """Write the claims of one recording anew."""
    header, *lines = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    _write(path, header, lines)


def _write(path: Path, header: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    agent = KNOWN[header["agent"]]
    parsers = {
        "stdout": parser_of(agent),
        "stderr": text_parser_of(agent),
        "log": log_parser_of(agent),
    }
    for line in lines:
        seen = parsers[line["from"]].feed(line["line"], line["at"])
        line["claims"] = [in_words(evidence) for evidence in seen]
    rows = [json.dumps(row, ensure_ascii=False) for row in (header, *lines)]
    path.write_text("\n".join(rows) + "\n", "utf-8")


def _run(
    name: str, binary: str, base: str | None, case: str, folder: Path, limit_s: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    agent, wish = KNOWN[name], CASES[case]
    home, state, work = folder / "home", folder / "state", folder / "work"
    for directory in (home, state, work):
        directory.mkdir()
    subprocess.run(["git", "init", "-q", "."], cwd=work, check=True)
    kept = home if wish.read_only_home else state
    start = launch(
        agent,
        state=None if wish.read_only_home else str(state),
        prompt="say hi",
        model=None if base is None else MODEL,
        unattended=wish.unattended,
        base=base,
    )
    for path, text in state_files(agent, base=base, model=MODEL, mcp=()).items():
        (kept / path).parent.mkdir(parents=True, exist_ok=True)
        (kept / path).write_text(text, "utf-8")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    environment |= dict(start.environment) | ({} if base is None else provider_secrets(agent, KEY))
    wrapper = []
    if wish.read_only_home:
        wrapper = [
            "bwrap",
            "--bind",
            "/",
            "/",
            "--dev-bind",
            "/dev",
            "/dev",
            "--ro-bind",
            str(home),
            str(home),
        ]
    if wish.confined:
        wrapper = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", str(folder), str(folder)]
        environment["TMPDIR"] = str(folder)
    began = time.monotonic()
    process = subprocess.Popen(
        [*wrapper, binary, *start.arguments],
        cwd=work,
        env=environment,
        stdin=subprocess.PIPE if start.stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    lines: list[dict[str, Any]] = []

    def read(stream: str) -> None:
        for line in getattr(process, stream):
            at = round(time.monotonic() - began, 1)
            lines.append({"at": at, "from": stream, "line": line.rstrip("\r\n")})

    readers = [threading.Thread(target=read, args=(stream,), daemon=True) for stream in ("stdout", "stderr")]
    for reader in readers:
        reader.start()
    if start.stdin is not None and process.stdin is not None:
        process.stdin.write(start.stdin)
        process.stdin.close()
    log = LogTail(str(state), agent.log.place) if agent.log is not None else None
    while (code := process.poll()) is None:
        at = round(time.monotonic() - began, 1)
        logged = log.read() if log is not None else ()
        telling = [line for line in logged if log_parser_of(agent).feed(line, at)]  # others are thousands
        lines += [{"at": at, "from": "log", "line": line} for line in telling]
        first = next((line["at"] for line in lines if line["from"] == "stdout"), None)
        if time.monotonic() - began > (
            max(START_LIMIT_S, limit_s) if first is None or agent.parser == "text" else first + limit_s
        ):
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for reader in readers:
        reader.join(5)
    return lines, {"exit": code, "seconds": round(time.monotonic() - began, 1)}


def _version(binary: str) -> str:
    said = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, timeout=START_LIMIT_S, check=False
    )
    found = re.search(r"\d+(?:\.\d+)+", said.stdout + said.stderr)  # pi says it on stderr
    return found[0] if found else "unknown"


def _tidy(line: str, names: list[tuple[str, str]]) -> str:
    for ours, theirs in names:
        line = line.replace(ours, theirs)
    line = _INSTALLED.sub(r"/\1/", line.replace(KEY, "KEY"))
    try:
        separators = (", ", ": ") if '": ' in line else (",", ":")
        return json.dumps(_short(json.loads(line)), ensure_ascii=False, separators=separators)
    except ValueError:
        return line[: 4 * MAX_TEXT]


def _short(value: Any) -> Any:
    match value:
        case str():
            return value[:MAX_TEXT]
        case list():
            return [_short(item) for item in value[:MAX_ITEMS]]
        case dict():
            return {key: _short(item) for key, item in value.items()}
    return value


def main() -> None:
    match sys.argv[1:]:
        case ["--claims"]:
            for path in sorted(FOLDER.glob("*/*.jsonl")):
                derive(path)
        case [name, binary, provider, *cases, "--limit", limit] if name in KNOWN and set(cases) <= set(CASES):
            for case in cases or CASES:
                record(name, binary, provider, case, float(limit))
        case [name, binary, provider, *cases] if name in KNOWN and set(cases) <= set(CASES):
            for case in cases or CASES:
                record(name, binary, provider, case)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
