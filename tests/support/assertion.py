"""`holdfast doctor assert` as a child process, with a home, a workspace and a memory of its own."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support import identity, warm
from tests.support.faults import NONE, Fault
from tests.support.patience import patient

# Without /tmp: what Codex mounts there for a moment, it takes away from every other Codex on the machine.
GOOD: Final = (
    'sandbox_mode = "workspace-write"\n'
    'approval_policy = "never"\n'
    "sandbox_workspace_write.exclude_slash_tmp = true\n"
)
TIMEOUT_S: Final = patient(120)  # several programs start one after the other, on a loaded machine


@dataclass(frozen=True)
class Asserted:
    """What it said, as JSON and otherwise."""

    code: int
    tree: dict[str, Any]
    err: str

    def failing(self) -> list[str]:
        return [each["claim"] for each in self.tree["claims"] if each["got"] != each["wanted"]]

    def causes(self) -> list[str]:
        return [each["fingerprint"] for each in self.tree["fingerprints"]]

    def status(self, route: str) -> str:
        status: str = next(each["status"] for each in self.tree["runs"] if each["route"] == route)
        return status


class Bench:
    """Directories that lie in none for temporary files."""

    def __init__(self, base: Path, binary: Path | None = None) -> None:
        self.base, self.binary = base, binary
        self.home, self.workspace, self.state = base / "home", base / "ws", base / "state"
        self.temporary = base / "tmp"
        for folder in (self.home, self.workspace, self.temporary):
            folder.mkdir()

    def configure(self, text: str) -> None:
        (self.home / "config.toml").write_text(text, "utf-8")

    def environ(self, **more: str) -> dict[str, str]:
        path = os.environ.get("PATH", os.defpath)
        places = {"HOME": self.base, "XDG_STATE_HOME": self.state, "TMPDIR": self.temporary}
        return {
            "PATH": path,
            "LANG": "C.UTF-8",
            **{name: str(place) for name, place in places.items()},
            **more,
        }

    def command(self, *options: str | Path) -> list[str]:
        own = ["--codex", str(self.binary)] if self.binary else ["--agent", "holdfast"]
        own += ["--home", str(self.home), "--cwd", str(self.workspace), *map(str, options)]
        return [sys.executable, "-m", "holdfast", "doctor", "assert", *own]

    def run(
        self,
        *options: str | Path,
        around: tuple[str, ...] = (),
        command: list[str] | None = None,
        fault: Fault = NONE,
        **more: str,
    ) -> Asserted:
        """Once; `around` is a program that starts it, `command` all of the words."""
        env = self.environ(**more)
        if fault.needs_exec:
            command = fault.wrap(identity.SELF, self.command("--json", *options))
        if around or command:
            done = subprocess.run(
                [*around, *(command or self.command("--json", *options))],
                cwd=self.base,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        else:
            words = self.command("--json", *options)[3:]
            done = warm.run(words, env=env, cwd=self.base, timeout=TIMEOUT_S, fault=fault)
        tree = json.loads(done.stdout) if done.stdout else {}
        return Asserted(done.returncode, tree, done.stderr)


@contextlib.contextmanager
def bench(binary: Path | None = None) -> Iterator[Bench]:
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-test-", dir="/var/tmp")))
    try:
        yield Bench(base, binary)
    finally:
        shutil.rmtree(base, ignore_errors=True)
