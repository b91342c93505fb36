"""Runs the self-check as somebody: `python -m tests.support.escapes MODE FOLDER` prints results as JSON.

Attempts run below FOLDER. As an ordinary user that means the whole server side too.
"""

import asyncio
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from holdfast.confine.launch import LauncherClient
from holdfast.doctor.escape import selfcheck
from holdfast.doctor.escape.attempts import ATTEMPTS, Attempt, Guarantee
from holdfast.light import replace
from holdfast.sandbox.backends import bwraptool
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.landlock import FAKE_ABI
from holdfast.sandbox.plan.select import Way
from tests.support import identity
from tests.support.patience import patient

SUITE_S: Final = patient(300.0)


@dataclass(frozen=True, slots=True)
class Mode:
    """Who runs it, and how.

    `root`: as root, else as an ordinary user. `landlock` False: without that layer; `alone`: with
    nothing else; `deeper`: in a directory of
    the workspace that holds nothing protected. `bwrap`: by bubblewrap. `confined` False: no sandbox.
    """

    name: str
    root: bool = False
    userns: bool = True
    landlock: bool = True
    alone: bool = False
    deeper: bool = False
    bwrap: bool = False
    confined: bool = True

    @property
    def uid(self) -> int:
        return 0 if self.root else identity.USER

    @property
    def way(self) -> Way:
        if self.alone:
            return Way.LANDLOCK
        if self.bwrap:
            return Way.BWRAP
        return Way.USER_NAMESPACE if self.userns else Way.AS_ROOT


MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("root-userns", root=True),
        Mode("root-plain", root=True, userns=False),
        Mode("user"),
        Mode("root-plain-no-landlock", root=True, userns=False, landlock=False),
        Mode("root-landlock", root=True, alone=True),
        Mode("user-landlock", alone=True),
        Mode("user-landlock-deeper", alone=True, deeper=True),
        Mode("root-bwrap", root=True, landlock=False, bwrap=True),
        Mode("user-bwrap", landlock=False, bwrap=True),
        Mode("root-no-sandbox", root=True, confined=False),
        Mode("user-no-sandbox", confined=False),
    )
}

# What would send something to the network or load a driver when nothing holds it.
_NEVER_FREE: Final = {"tcp-far", "udp-far", "multicast", "dns-far", "dns", "interface-down"}
_NEVER_FREE_FAMILIES: Final = {"vsock", "alg", "bluetooth", "xdp", "raw6", "packet"}


# What an attempt expects to find where it starts.
_IN_WORKSPACE: Final = (
    "'conf",
    "'secrets",
    ".git'",
    "'a/up",
    "'alias",
    "scene.stream",
    "scene.datagram",
    "scene.supervisor",
    "self/cwd",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A result as it is printed."""

    id: str
    verdict: str
    text: str


def attempts_of(mode: Mode) -> list[Attempt]:
    if mode.deeper:
        return [one for one in ATTEMPTS if not any(name in one.script for name in _IN_WORKSPACE)]
    if mode.confined:
        return list(ATTEMPTS)
    skipped = _NEVER_FREE | _NEVER_FREE_FAMILIES
    return [one for one in ATTEMPTS if one.guarantee is not Guarantee.USABLE and one.id not in skipped]


def suite(mode: Mode, folder: Path) -> dict[str, Row]:
    """The whole self-check in a process of its own; rows by id of the attempt."""
    done = subprocess.run(
        [identity.python(mode.uid), "-m", "tests.support.escapes", mode.name, str(folder)],
        cwd=identity.top(mode.uid),
        stdout=subprocess.PIPE,
        timeout=SUITE_S,
        check=True,
    )
    return {row["id"]: Row(**row) for row in json.loads(done.stdout)}


class _WithoutLandlock(subprocess.Popen[bytes]):
    """A launcher on a kernel that has no Landlock: it takes no word of anybody else's environment."""

    def __init__(self, argv: list[str], *, env: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(argv, env=None if env is None else {**env, FAKE_ABI: "0"}, **more)


async def _without_sandbox(job: selfcheck.AttemptJob) -> selfcheck.AttemptOutcome:
    return await asyncio.to_thread(_free, job)


def _free(job: selfcheck.AttemptJob) -> selfcheck.AttemptOutcome:
    """No sandbox at all, and a descriptor that was forgotten."""
    ours, theirs = os.openpty() if job.tty else os.pipe2(os.O_CLOEXEC)
    forgotten = os.open("/", os.O_RDONLY)
    os.set_inheritable(forgotten, True)
    try:
        process = subprocess.Popen(
            job.argv,
            env=job.env,
            cwd=job.plan.cwd,
            stdin=theirs if job.tty else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            pass_fds=(forgotten,),
            start_new_session=True,
        )
        os.close(theirs)
        output = _read_all(ours)
        status = process.wait(selfcheck.COMMAND_S)
        return selfcheck.AttemptOutcome(status if status >= 0 else 128 - status, output)
    finally:
        os.close(forgotten)
        os.close(ours)


def _read_all(fd: int) -> str:
    """What is written to the other end until nobody holds it, as much of it as the self-check keeps."""
    kept = bytearray()
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""  # how a terminal says that its other end is gone
        if not data:
            return kept.decode("utf-8", "replace")
        kept += data[: max(0, selfcheck.MAX_OUTPUT - len(kept))]


def _deeper(backend: selfcheck.RunConfined) -> selfcheck.RunConfined:
    """The same, in a directory of the workspace that looks like it."""

    async def run(job: selfcheck.AttemptJob) -> selfcheck.AttemptOutcome:
        inner = Path(job.plan.cwd) / "sub"
        (inner / "sub").mkdir(exist_ok=True)
        return await backend(dataclasses.replace(job, plan=replace(job.plan, cwd=str(inner))))

    return run


def _python_inside() -> str:
    """An interpreter that a command sees under every policy, if there is one."""
    found = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    return sys.executable if found is None else found


async def _run(mode: Mode, folder: Path, python: str) -> list[selfcheck.AttemptResult]:
    attempts = attempts_of(mode)
    if not mode.confined:
        return await selfcheck.run(_without_sandbox, folder=folder, attempts=attempts, python=python)
    if not mode.landlock and not mode.bwrap:
        mock.patch.object(subprocess, "Popen", _WithoutLandlock).start()
    launcher = LauncherClient()
    try:
        tool = bwraptool.find(os.defpath) if mode.bwrap else ""
        backend: selfcheck.RunConfined = selfcheck.Native(launcher, mode.way, tool=tool)
        if mode.deeper:
            backend = _deeper(backend)
        return await selfcheck.run(backend, folder=folder, attempts=attempts, python=python)
    finally:
        await launcher.aclose()


def main(mode: Mode, folder: Path) -> None:
    python = _python_inside()
    if not mode.confined and mode.root:
        # Nothing that is mounted by an attempt may reach the host.
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.make_private(kernel.open_path("/"))
    identity.become(mode.uid)
    results = asyncio.run(_run(mode, folder, python))
    rows = [asdict(Row(one.attempt.id, one.verdict.value, one.describe())) for one in results]
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main(MODES[sys.argv[1]], Path(sys.argv[2]))
