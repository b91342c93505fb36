"""Install the pinned agent CLIs, the peers of the interop tests, into the ignored folder `.agents-cli/`.

HOLDFAST_AGENTS_CLI names another folder, for sources that cannot be written.

python -m tools.get_agents [NAME ...]     all agents, or these; quick when they are there; prints the paths
python -m tools.get_agents --records      those that records describe
python -m tools.get_agents --pin [NAME ...]    write lock files anew, after a changed version in the table

What is fetched is compared with the digests in tools/agents/*.json. No script of a package is run.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(
    os.environ.get("HOLDFAST_AGENTS_CLI") or Path(__file__).resolve().parent.parent / ".agents-cli"
).absolute()
LOCKS: Final = Path(__file__).resolve().parent / "agents"
INSTALL_LIMIT_S: Final = 600  # a download of some hundred megabytes over a slow line, but not for ever
STAMP: Final = "installed"


class Pin(NamedTuple):
    """A package in one version, and where the program is in what npm makes of it."""

    package: str
    version: str
    program: str  # a pattern: the native binary is in a package named after the platform


AGENTS: Final = {
    "codex": Pin("@openai/codex", "0.166.0", "@openai/codex-*/vendor/*/bin/codex"),
    "opencode": Pin("opencode-ai", "1.18.33", "opencode-*/bin/opencode"),
    "claude": Pin("@anthropic-ai/claude-code", "2.1.325", "@anthropic-ai/claude-code-*/claude"),
    "gemini": Pin("@google/gemini-cli", "0.61.0", ".bin/gemini"),
    "qwen": Pin("@qwen-code/qwen-code", "0.24.4", ".bin/qwen"),
}
# Those that a record describes. They are large and few tests run them: `make agents` fetches them.
RECORDS: Final = {
    "cline": Pin("@cline/cli-linux-x64", "3.0.65", "@cline/cli-*/bin/cline"),
    "continue": Pin("@continuedev/cli", "1.5.47", ".bin/cn"),
    "copilot": Pin("@github/copilot", "1.0.102", ".bin/copilot"),
    "goose": Pin("@aaif/goose-binary-linux-x64", "1.52.0", "@aaif/goose-binary-*/bin/goose"),
    "kilo": Pin("@kilocode/cli-linux-x64", "7.7.9", "@kilocode/cli-*/bin/kilo"),
    "pi": Pin("@mariozechner/pi-coding-agent", "0.73.1", ".bin/pi"),
}
# A sandbox without an agent, which only the benchmarks run.
PINS: Final = AGENTS | RECORDS | {"srt": Pin("@anthropic-ai/sandbox-runtime", "0.0.83", ".bin/srt")}


def installed(name: str, folder: Path = FOLDER) -> Path | None:
    """The program in `folder`, or None unless it is there in the pinned version."""
    try:
        stamp = (folder / name / STAMP).read_text("utf-8")
    except OSError:
        return None
    return _program(name, folder) if stamp == _digest(name) else None


def install(name: str, folder: Path = FOLDER) -> Path:
    """Fetch the pinned version with npm, in place of any other.

    Raises:
        SystemExit: npm is missing or failed, or the platform has no program.
    """
    home, pin = folder / name, PINS[name]
    shutil.rmtree(home, ignore_errors=True)
    _write_manifest(home, pin)
    shutil.copyfile(LOCKS / f"{name}.json", home / "package-lock.json")
    # `npm ci` would ask for the packages of every platform, and the registry has not all of them.
    status = _npm(home, "install", "--no-save")
    found = _program(name, folder)
    if status != 0 or found is None:
        raise SystemExit(
            f"npm ended with status {status} and left no {pin.package} {pin.version} for this platform"
        )
    (home / STAMP).write_text(_digest(name), "utf-8")
    return found


def pin_again(name: str) -> None:
    """Let npm resolve the version in the table, and keep its lock without addresses."""
    home = FOLDER / f"{name}.pin"
    _write_manifest(home, PINS[name])
    try:
        if _npm(home, "install", "--package-lock-only", "--omit-lockfile-registry-resolved") != 0:
            raise SystemExit(f"npm does not find {PINS[name].package} {PINS[name].version}")
        lock = json.loads((home / "package-lock.json").read_text("utf-8"))
    finally:
        shutil.rmtree(home)
    for package in lock["packages"].values():
        package.pop("funding", None)
    (LOCKS / f"{name}.json").write_text(json.dumps(lock, indent=2) + "\n", "utf-8")


def _npm(home: Path, *arguments: str) -> int:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed; it is needed once, to fetch the agent CLIs")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    # What npm prints goes to stderr: the caller reads paths from stdout.
    done = subprocess.run(
        [npm, *arguments, *quiet], cwd=home, stdout=sys.stderr, timeout=INSTALL_LIMIT_S, check=False
    )
    return done.returncode


def _write_manifest(home: Path, pin: Pin) -> None:
    home.mkdir(parents=True, exist_ok=True)
    manifest = {"name": home.name.split(".")[0], "private": True, "dependencies": {pin.package: pin.version}}
    (home / "package.json").write_text(json.dumps(manifest), "utf-8")


def _program(name: str, folder: Path) -> Path | None:
    """Of several builds for one platform the one with the shortest name, which is the ordinary one."""
    found = (folder / name / "node_modules").glob(PINS[name].program)
    return min(found, key=lambda path: len(str(path)), default=None)


def _digest(name: str) -> str:
    return hashlib.sha256((LOCKS / f"{name}.json").read_bytes()).hexdigest()


def main() -> None:
    names = sys.argv[1:]
    if names[:1] == ["--pin"]:
        for name in names[1:] or PINS:
            pin_again(name)
        return
    if names == ["--records"]:
        names = list(RECORDS)
    if unknown := set(names) - set(PINS):
        raise SystemExit(f"not in the table: {', '.join(sorted(unknown))}")
    failed = []
    for name in names or AGENTS:
        try:
            print(installed(name) or install(name), flush=True)
        except SystemExit as exc:
            if names:
                raise
            print(exc, file=sys.stderr)
            failed.append(name)
    if failed:
        print(f"tests with {', '.join(failed)} will be SKIPPED", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")


if __name__ == "__main__":
    main()
