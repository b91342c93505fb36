"""What is known of an environment: whether it was reached, what its doctor says, what its sandbox enforced.

Pure module. A machine says of itself what it likes: numbers are held to bounds, and words are made fit to be
shown.
"""

import re
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.local.shown import show_text

MAX_WORDS: Final = 300  # characters of what is told of it
MAX_CPUS: Final = 4096
MAX_MEMORY: Final = 1 << 50
MAX_PROBLEMS: Final = 5


class EnvironmentFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Times are seconds since 1970 on this machine's clock. Zeros and empty words: it does not say."""

    schema: int = 1
    at: float
    reached: bool
    since: float  # since when it is reached, or is not
    error: str = ""  # why it was not reached
    system: str = ""
    version: str = ""
    cpus: int = 0
    memory: int = 0  # bytes
    free: int = 0
    backend: str = ""  # what its sandbox was enforced by, when it was tried
    unconfined: str = ""  # why nothing that must be confined can run there
    holdfast: bool = False  # whether its programs find `holdfast`, to report with
    problems: list[str] = []  # of its doctor


class _Finding(msgspec.Struct):
    id: str
    severity: str
    title: str


class _Findings(msgspec.Struct):
    findings: list[_Finding]


def follow_on(before: EnvironmentFacts | None, found: EnvironmentFacts) -> EnvironmentFacts:
    """The same with since when it is so, and with what was known of a machine that is away now."""
    if before is None:
        return found
    since = before.since if before.reached == found.reached else found.since
    if not found.reached:
        return msgspec.structs.replace(before, at=found.at, reached=False, since=since, error=found.error)
    return msgspec.structs.replace(found, since=since)


def read_facts(said: str) -> EnvironmentFacts:
    """What the script over there printed."""
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
    """Of a doctor of any version; none of what is no such list."""
    try:
        return decoding.decode(told, _Findings).findings
    except msgspec.MsgspecError:
        return []
