"""Findings from facts about a machine: what is wrong, the evidence, the remedy. Pure module."""

import enum
import errno
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from holdfast.sandbox.host.hostfacts import HostFacts
from holdfast.sandbox.plan.select import BACKENDS, CAUSED, WEAKNESSES, Trial, Way, meets
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Need
from holdfast.sandbox.reasons import fingerprints
from holdfast.sandbox.reasons.fingerprints import Fingerprint

SCHEMA_VERSION: Final = 1
LOW_DISK_BYTES: Final = 1 << 30  # one build of an ordinary project
NO_DISK_BYTES: Final = 100 << 20  # not enough for a checkout
LOW_FILES: Final = 10_000  # names of a small node_modules
LOW_OPEN_FILES: Final = 1024  # the default of most systems; less breaks builds and test runners
SANE_CLOCK: Final = 1_735_689_600.0  # 2025: before it, no current certificate is valid


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """A directory for an agent's state, or for temporary files."""

    path: str
    exists: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class InstalledProgram:
    """A program on the PATH. `version` is None if it reports none, `logged_in` if that is unknown."""

    name: str
    path: str
    version: str | None = None
    places: tuple[PlaceFacts, ...] = ()
    logged_in: bool | None = None
    asked: bool = True  # whether it was run for its version


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    free_bytes: int
    free_files: int | None  # None where the file system does not count them


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One look at this machine."""

    host: HostFacts
    trials: Mapping[Way, Trial]
    tmux: InstalledProgram | None
    agents: tuple[InstalledProgram, ...]
    codex_home: str
    temporary: PlaceFacts
    disks: tuple[Disk, ...]
    open_files: int
    processes: int | None  # None: no limit
    encoding: str
    now: float
    unlaunched: str = ""  # why no way to confine could be tried through our own launcher
    other_package: str = ""  # why another distribution of the same import name is in the way
    other_package_remedy: str = ""
    invalid_records: Mapping[str, str] = field(default_factory=dict)  # of agents → why


class FindingSeverity(enum.IntEnum):
    """How bad a finding is; the worst of all decides the exit code."""

    OK = 0
    NOTE = 1
    DEGRADED = 2
    BROKEN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `remedy` can be pasted or followed as it is; `fingerprint` is a known cause."""

    id: str
    severity: FindingSeverity
    title: str
    evidence: str = ""
    remedy: str | None = None
    fingerprint: str | None = None

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self) | {"severity": self.severity.name.lower()}


def findings(facts: MachineFacts) -> list[Finding]:
    """Everything worth reporting, in the order of the screen."""
    return [
        *_sandbox(facts),
        *_host(facts),
        *_agents(facts),
        *_tools(facts),
        *_resources(facts),
    ]


def exit_code(found: list[Finding]) -> int:
    """0: all good, 1: something is weaker than it could be, 2: something does not work at all."""
    worst = max((finding.severity for finding in found), default=FindingSeverity.OK)
    return max(0, worst - FindingSeverity.NOTE)


# --- the sandbox


def _sandbox(facts: MachineFacts) -> Iterator[Finding]:
    works = [way for way in Way if way in facts.trials and facts.trials[way].works]
    if not works:
        refused = [facts.trials[way] for way in Way if way in facts.trials]
        strongest = next((trial for trial in refused if _cause(trial)), Trial())
        yield Finding(
            "sandbox.none",
            FindingSeverity.BROKEN,
            "no sandbox works here: confined commands are refused",
            facts.unlaunched or explain_trial(strongest),
            _remedy(_cause(strongest)),
            _id(_cause(strongest)),
        )
    yield from _names(facts, works)
    weaker = not works or BACKENDS[works[0]] is not BACKENDS[Way.USER_NAMESPACE]
    for way, trial in facts.trials.items():
        if trial.works:
            yield from _working(way, facts, used=way is works[0])
        else:
            known = _cause(trial)
            yield Finding(
                f"sandbox.{way.name.lower()}",
                FindingSeverity.DEGRADED if weaker and way is Way.USER_NAMESPACE else FindingSeverity.NOTE,
                f"{BACKENDS[way]} ({way}) does not work",
                explain_trial(trial),
                _remedy(known),
                _id(known),
            )


def _names(facts: MachineFacts, works: list[Way]) -> Iterator[Finding]:
    """Whether hosts can be reached by name, as workers need it by default, and by which backend."""
    able = [
        way
        for way in works
        if meets(way, frozenset({Need.HOSTS_BY_NAME})) and "loopback" not in facts.trials[way].weakened
    ]
    if able:
        yield Finding(
            "sandbox.hosts-by-name",
            FindingSeverity.OK,
            f"hosts can be allowed by name, by {BACKENDS[able[0]]} ({able[0]})",
        )
    elif works:
        refused = facts.trials.get(Way.USER_NAMESPACE, Trial())
        yield Finding(
            "sandbox.hosts-by-name",
            FindingSeverity.DEGRADED,
            "hosts cannot be allowed by name: --allow-host is refused, and workers have the whole network",
            "" if refused.works else explain_trial(refused),
            _remedy(_cause(refused)),
            _id(_cause(refused)),
        )


def explain_trial(trial: Trial) -> str:
    """Where a way to confine failed, with which errno, and the cause if it is known."""
    return _why(trial.stage, trial.errno, _cause(trial))


def _why(stage: str, code: int, known: Fingerprint | None) -> str:
    stage, told, _ = stage.partition(":")  # after the colon are bubblewrap's words, seldom with an errno
    name = "" if told and code == errno.EIO else errno.errorcode.get(code, "")
    return ", ".join(
        filter(None, (f"{stage}: {name}".rstrip(" :"), f"{known.cause} [{known.id}]" if known else ""))
    )


def _cause(trial: Trial) -> Fingerprint | None:
    return fingerprints.by_errno(trial.stage, trial.errno)


def _remedy(known: Fingerprint | None) -> str | None:
    return None if known is None else known.remedy


def _id(known: Fingerprint | None) -> str | None:
    return None if known is None else known.id


def _working(way: Way, facts: MachineFacts, *, used: bool) -> Iterator[Finding]:
    trial = facts.trials[way]
    yield Finding(
        f"sandbox.{way.name.lower()}",
        FindingSeverity.OK,
        f"{BACKENDS[way]} ({way}) works" + (", and is the one that is used" if used else ""),
        trial.tool,
    )
    if used:
        for word in trial.weakened:
            code = _errno_of(word, facts)
            # Without an errno of its own, Landlock is not missing: this way does not use it.
            known = (
                fingerprints.by_errno(word, 0 if word in CAUSED else code) if word in CAUSED or code else None
            )
            yield Finding(
                f"sandbox.weakened.{word}",
                FindingSeverity.DEGRADED,
                WEAKNESSES.get(word, word),
                _why(word, code, known) if known else "",
                _remedy(known),
                _id(known),
            )


def _errno_of(stage: str, facts: MachineFacts) -> int:
    """The errno that a stage was refused with; 0 if it was not, or not tried in time."""
    tried = [(trial.stage, trial.errno) for trial in facts.trials.values()]
    tried += [(fact.stage, fact.errno) for fact in facts.host.facts]
    return next((code for name, code in tried if name == stage and code), 0)


def _host(facts: MachineFacts) -> Iterator[Finding]:
    host = facts.host
    who = "root" if host.uid == 0 else f"user {host.uid}"
    yield Finding("host.kernel", FindingSeverity.OK, f"Linux {host.kernel}, as {who}")
    for fact in host.facts:
        if fact.works is False and fact.name != "bwrap":  # a backend of its own, reported with those
            said = fact.report()
            yield Finding(
                f"host.{fact.name}",
                FindingSeverity.NOTE,
                f"this host does not allow: {fact.name}",
                f"{fact.stage}: {said['errno'] or fact.errno}",
                str(said["remedy"]) if said["remedy"] else None,
                str(said["fingerprint"]) if said["fingerprint"] else None,
            )
    if host.container is not None:
        yield Finding("host.container", FindingSeverity.OK, f"inside a container ({host.container})")
    if host.apparmor.restricts:
        yield Finding(
            "host.apparmor",
            FindingSeverity.NOTE,
            "AppArmor takes every privilege from user namespaces of programs without a profile",
            f"kernel.apparmor_restrict_unprivileged_userns=1; our profile: {host.apparmor.profile or 'none'}",
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        )
    if host.selinux is not None:
        yield Finding("host.selinux", FindingSeverity.OK, f"SELinux is {host.selinux}")
    if host.filtered:
        yield Finding(
            "host.filtered", FindingSeverity.NOTE, "we run inside of another program's seccomp filter"
        )


# --- agents and tools


def _agents(facts: MachineFacts) -> Iterator[Finding]:
    for agent in facts.agents:
        state = {True: ", logged in", False: ", not logged in", None: ""}[agent.logged_in]
        version = agent.version or ("did not say its version in time" if agent.asked else "is installed")
        yield Finding(
            f"agent.{agent.name}",
            FindingSeverity.OK if agent.version or not agent.asked else FindingSeverity.NOTE,
            f"{agent.name} {version}{state}",
            agent.path,
        )
        for place in agent.places:
            if not place.writable:
                yield Finding(
                    f"agent.{agent.name}.state",
                    FindingSeverity.DEGRADED,
                    f"{agent.name} cannot write its state to {place.path}",
                    "not writable" if place.exists else "cannot be created",
                    f"sudo chown -R $(id -u) {place.path}" if place.exists else f"mkdir -p {place.path}",
                )
        if agent.name == "codex":
            yield from _codex(facts)
    for name, reason in facts.invalid_records.items():
        yield Finding(
            "agent.record",
            FindingSeverity.DEGRADED,
            f"the record of {name} is invalid, and nobody can run it",
            reason,
            "holdfast worker agents",
        )


def _codex(facts: MachineFacts) -> Iterator[Finding]:
    if within(facts.codex_home, facts.temporary.path):
        yield Finding(
            "agent.codex.home",
            FindingSeverity.BROKEN,
            "Codex's home is below the directory for temporary files: its sandbox may not start",
            f"CODEX_HOME={facts.codex_home}",
            "export CODEX_HOME=$HOME/.codex",
        )
    bwrap = facts.trials.get(Way.BWRAP, Trial())
    known = _cause(bwrap)
    # Codex brings its own bubblewrap: a fault of the host's does not stop it.
    if not bwrap.works and known is not None and not known.id.startswith("bwrap."):
        yield Finding(
            "agent.codex.sandbox",
            FindingSeverity.DEGRADED,
            "Codex's own sandbox does not start here: its commands fail unless it runs without one",
            explain_trial(bwrap),
            known.remedy,
            known.id,
        )


def _tools(facts: MachineFacts) -> Iterator[Finding]:
    if facts.other_package:
        yield Finding(
            "install.other-package",
            FindingSeverity.DEGRADED,
            "another package with the import name holdfast is installed here",
            facts.other_package,
            facts.other_package_remedy,
        )
    if facts.tmux is None:
        yield Finding("tool.tmux", FindingSeverity.NOTE, "no tmux", "", "apt-get install tmux")
    else:
        yield Finding(
            "tool.tmux", FindingSeverity.OK, f"tmux {facts.tmux.version or ''}".rstrip(), facts.tmux.path
        )
    if (bwrap := facts.host.bwrap) is not None:
        yield Finding("tool.bwrap", FindingSeverity.OK, f"bubblewrap {bwrap.version}", bwrap.path)


# --- resources


def _resources(facts: MachineFacts) -> Iterator[Finding]:
    if not (facts.temporary.exists and facts.temporary.writable):
        yield Finding(
            "temporary",
            FindingSeverity.BROKEN,
            f"no temporary files can be made in {facts.temporary.path}",
            "not writable" if facts.temporary.exists else "does not exist",
            "mkdir -p ~/tmp && export TMPDIR=~/tmp",
        )
    for disk in facts.disks:
        free = f"{disk.free_bytes / (1 << 30):.1f} GiB free at {disk.path}"
        few = disk.free_files is not None and disk.free_files < LOW_FILES
        if disk.free_bytes < LOW_DISK_BYTES or few:
            severity = FindingSeverity.BROKEN if disk.free_bytes < NO_DISK_BYTES else FindingSeverity.DEGRADED
            told = f"{free}, {disk.free_files} more files"
            yield Finding(
                "disk.low", severity, "the disk is nearly full", told, f"du -xh {disk.path} | sort -h"
            )
        else:
            yield Finding("disk", FindingSeverity.OK, free)
    if facts.open_files < LOW_OPEN_FILES:
        yield Finding(
            "limit.open-files",
            FindingSeverity.DEGRADED,
            f"only {facts.open_files} files may be open at once",
            f"RLIMIT_NOFILE={facts.open_files}",
            "ulimit -n 4096",
        )
    if facts.encoding.replace("-", "").lower() != "utf8":
        yield Finding(
            "locale",
            FindingSeverity.DEGRADED,
            "file names are not UTF-8 here",
            f"encoding {facts.encoding}",
            "export LANG=C.UTF-8",
        )
    if facts.now < SANE_CLOCK:
        yield Finding(
            "clock",
            FindingSeverity.BROKEN,
            "the clock is years behind: no certificate is valid",
            f"seconds since 1970: {facts.now:.0f}",
            "sudo timedatectl set-ntp true",
        )
