"""Finds the facts that decide about an agent's sandbox on this machine; nothing here declares a boundary."""

import asyncio
import errno
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.agentconfig.decision import Admin, AgentName, Boundary, CodexFacts, Version
from holdfast.agentconfig.document import scan
from holdfast.sandbox.host import probes
from holdfast.sandbox.host.hostfacts import HostFacts

PROBE_S: Final = 2.0  # for each attempt; it takes milliseconds, and a slow one would be taken for "not known"

_USERNS: Final = ("user namespace", "uid map", "mount propagation", "mount calls", "pid namespace")
_NETNS: Final = ("net namespace", "loopback")
_PROC: Final = ("fresh proc",)


def gather(
    *,
    text: str,
    home: Path,
    version: Version | None,
    admin: Admin,
    boundary: Boundary,
    trusted: bool,
    agent: AgentName = AgentName.CODEX,
    environ: Mapping[str, str] = os.environ,
) -> CodexFacts:
    """Everything the matrix wants to know; `text` is the configuration of Codex as it is."""
    system = _system(environ)
    found = asyncio.run(probes.probe(environ, stage_s=PROBE_S)) if system == "linux" else None
    temporary = dict.fromkeys(os.path.realpath(path) for path in ("/tmp", environ.get("TMPDIR") or "/tmp"))  # noqa: S108
    return CodexFacts(
        system,
        version,
        userns=_works(found, _USERNS),
        netns=_works(found, _NETNS),
        proc=_works(found, _PROC),
        bubblewrap=_bubblewrap(found),
        nested=environ.get("CODEX_SANDBOX") == "seatbelt",
        windows_sandbox=_windows_sandbox(text),
        boundary=boundary,
        trusted=trusted,
        admin=admin,
        home=os.path.realpath(home),
        temporary=tuple(temporary),
        agent=agent,
    )


def _system(environ: Mapping[str, str]) -> str:
    system = platform.system().lower()
    if system == "linux" and "ANDROID_ROOT" in environ:
        return "android"
    return "wsl1" if system == "linux" and platform.release().endswith("-Microsoft") else system


def _works(found: HostFacts | None, names: tuple[str, ...]) -> bool | None:
    """All of these; an attempt that ran out of time says nothing about the host."""
    facts = [found.fact(name) if found else None for name in names]
    tried = [fact.works if fact and fact.errno != errno.ETIMEDOUT else None for fact in facts]
    return False if False in tried else None if None in tried else True


def _bubblewrap(found: HostFacts | None) -> tuple[int, int] | None:
    number = re.match(r"(\d+)\.(\d+)", found.bwrap.version) if found and found.bwrap else None
    return (int(number[1]), int(number[2])) if number else None


def _windows_sandbox(text: str) -> str | None:
    for item in scan(text).items:
        if item.path == ("windows", "sandbox") and item.value is not None:
            return item.value.string
    return None
