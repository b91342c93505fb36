"""Facts about an environment: whether it was reached, what its doctor says, what its sandbox enforced.

Pure module. A machine may report anything about itself: numbers are bounded, and texts are made fit to be
shown.
"""

import re
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.local.shown import show_text

MAX_WORDS: Final = 300  # characters of each text about it
MAX_CPUS: Final = 4096
MAX_MEMORY: Final = 1 << 50
MAX_PROBLEMS: Final = 5


class EnvironmentFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Times are seconds since 1970 on this machine's clock. Zero or empty means not reported."""

    schema: int = 1
    at: float
    reached: bool
    since: float  # since when it has been reachable, or unreachable
    error: str = ""  # why it was not reached
    system: str = ""
    version: str = ""
    cpus: int = 0
    memory: int = 0  # bytes
    free: int = 0
    backend: str = ""  # what enforced its sandbox when it was tried
    unconfined: str = ""  # why confined commands cannot run there
    holdfast: bool = False  # whether `holdfast` is on its PATH, which workers report with
    problems: list[str] = []  # reported by its doctor


class _Finding(msgspec.Struct):
    id: str
    severity: str
    title: str


class _Findings(msgspec.Struct):
    findings: list[_Finding]


def follow_on(before: EnvironmentFacts | None, found: EnvironmentFacts) -> EnvironmentFacts:
    """Return the new facts with `since` kept, and for an unreachable machine with what was known before."""
    if before is None:
        return found
    since = before.since if before.reached == found.reached else found.since
    if not found.reached:
        return msgspec.structs.replace(before, at=found.at, reached=False, since=since, error=found.error)
    return msgspec.structs.replace(found, since=since)


def read_facts(said: str) -> EnvironmentFacts:
    """Parse the output of the script on the other machine."""
    head, _, told = said.partition("\n--\n")
    sizes = {name: int(size) << 10 for name, size in re.findall(r"^(\w+):\s+(\d{1,15}) kB$", head, re.M)}
    cpus = head.partition("\n")[0].strip()
    unconfined, holdfast = "", bool(told.strip())
    findings = _read_findings(told)
    bad = [one for one in findings if one.severity != "ok"]
    problems = [show_text(one.title)[:MAX_WORDS] for one in bad[:MAX_PROBLEMS]]
    backends = [one for one in findings if one.id.startswith("sandbox.")]
    if backends and all(one.severity != "ok" for one in backends):
        unconfined = f"its doctor says: {show_text(backends[0].title)}"[:MAX_WORDS]
    return EnvironmentFacts(
        at=0.0,
        reached=True,
        since=0.0,
        cpus=min(int(cpus), MAX_CPUS) if re.fullmatch(r"\d{1,6}", cpus) else 0,
        memory=min(sizes.get("MemTotal", 0), MAX_MEMORY),
        free=min(sizes.get("MemAvailable", 0), MAX_MEMORY),
        unconfined=unconfined,
        holdfast=holdfast,
        problems=problems,
    )


def _read_findings(told: str) -> list[_Finding]:
    """Parse the findings of a doctor of any version; empty if it is not such a list."""
    try:
        return decoding.decode(told, _Findings).findings
    except msgspec.MsgspecError:
        return []
