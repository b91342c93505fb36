"""Reports whether a worker's surroundings are those that its CLI would have without us. Pure module.

The answer depends on the process's identity, and on the confinement that the kernel holds on it. Differences
in files and network are listed but do not decide: without confinement of the process, they differ only
because they changed meanwhile. How it was started (variables, terminal, session) does not decide either: that
was requested.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.agents.catalog.agent import Agent, StatePath
from holdfast.agents.evidence.advice import Difference, EquivalenceReport
from holdfast.doctor.compare.equivalence import (
    MAX_LINE,
    OTHER_PROVIDER,
    PROVIDER_OUT_OF_REACH,
    RELOCATED,
    Circumstances,
    ComparedRow,
    Comparison,
    EquivalenceVerdict,
    Observation,
    ReachAnswer,
    Value,
    compare,
)

CONFINEMENT: Final = "confinement"
ITSELF: Final = "the process itself"
_DECIDING: Final = ("identity", CONFINEMENT)
_SEARCHED: Final = frozenset({"HOME", "PATH"})  # every CLI uses these to find files
_TO_A_PROVIDER: Final = frozenset({"interfaces", "families", "default route", "name servers"})
EXITS: Final = {"yes": 0, "no": 1, "unknown": 2}


@dataclass(frozen=True, slots=True)
class Case:
    """The facts about a worker that decide which differences matter to it."""

    id: str
    agent: Agent
    cwd: str
    tty: bool = False
    state: Mapping[str, StatePath] = field(default_factory=dict)  # compared path → what the CLI keeps there
    chosen: frozenset[str] = frozenset()  # variables that we set, not its caller
    on_loopback: bool = False  # its provider is on this machine
    supervision: tuple[str, ...] = ()  # other supervision, in words


def judge(
    host: Circumstances, probe: Circumstances, process: Mapping[str, Value] | None, case: Case
) -> EquivalenceReport:
    """Compare what a probe saw on either side, and what the kernel reports about the started process.

    Without `process` the process ended before we could look, so the answer cannot be yes.
    """
    held: dict[str, Value] = {**probe.get(CONFINEMENT, {}), **(process or {})}
    expected: dict[str, Value] = dict(host.get(CONFINEMENT, {}))
    if process is None:
        expected[ITSELF], held[ITSELF] = "seen", None
    found = compare(Observation({**host, CONFINEMENT: expected}), Observation({**probe, CONFINEMENT: held}))
    answer, why = _answer(found)
    rows = [_difference(row, case) for row in found.rows]
    return EquivalenceReport(
        id=case.id,
        agent=case.agent.name,
        host_equivalent=answer.value,
        why=why,
        supervision=list(case.supervision),
        rows=sorted(rows, key=lambda row: not row.matters),
    )


def report_unknown(worker: str, agent: str, why: str) -> EquivalenceReport:
    """Return a report of a comparison that could not be made."""
    return EquivalenceReport(id=worker, agent=agent, host_equivalent=ReachAnswer.UNKNOWN.value, why=why)


def _answer(found: Comparison) -> tuple[ReachAnswer, str]:
    deciding = [row for row in found.rows if row.group in _DECIDING]
    if differing := [row for row in deciding if row.differs]:
        return ReachAnswer.NO, f"not as on the host: {', '.join(row.field for row in differing)}"
    unseen = [
        row.field
        for row in deciding
        if row.group == CONFINEMENT and row.verdict is EquivalenceVerdict.UNKNOWN
    ]
    if unseen:
        return ReachAnswer.UNKNOWN, f"could not be seen: {', '.join(unseen)}"
    return ReachAnswer.YES, "namespaces, privileges and filters of the process are those of the host"


def _difference(row: ComparedRow, case: Case) -> Difference:
    told = _to_this_cli(row, case) if row.differs else None
    return Difference(
        group=row.group,
        field=row.field,
        host=row.host,
        worker=row.worker,
        verdict=row.verdict.value,
        consequence=told or row.consequence,
        matters=told is not None,
    )


def _to_this_cli(row: ComparedRow, case: Case) -> str | None:
    """Return the consequence of a difference for this CLI; None if it does not matter to it."""
    agent = case.agent
    match row.group:
        case "files":
            kept = case.state.get(row.field)
            if kept is not None:
                return f"{kept.role}: {kept.without}"
            in_work_tree = row.field == case.cwd or row.field.startswith(f"{case.cwd}/")
            return row.consequence if in_work_tree else None
        case "network" if agent.provider is not None:
            if row.field in _TO_A_PROVIDER:
                return f"{PROVIDER_OUT_OF_REACH}: {row.consequence}"
            return PROVIDER_OUT_OF_REACH if case.on_loopback and row.field == "loopback of the host" else None
        case "environment":
            if row.field in case.chosen:
                if row.field in agent.relocation:
                    return RELOCATED
                by_provider = agent.provider is not None and row.field in agent.provider.environment
                return OTHER_PROVIDER if by_provider else None
            return row.consequence if row.field in _SEARCHED else None
        case "terminal" if case.tty:
            return row.consequence
    return None


# --- for people


def lines(report: EquivalenceReport) -> list[str]:
    """Return the answer in one line, what matters to this CLI, the rest, and how much is the same."""
    told = [f"host-equivalent: {report.host_equivalent} ({report.why})"]
    shown = [row for row in report.rows if row.verdict != EquivalenceVerdict.SAME.value]
    told += _section(f"matters to {report.agent} (host → worker)", [row for row in shown if row.matters])
    told += _section("the rest (host → worker)", [row for row in shown if not row.matters])
    if report.supervision:
        told += ["", f"supervised: {', '.join(report.supervision)}"]
    same = len(report.rows) - len(shown)
    return [*told, "", f"{same} things are the same"] if report.rows else told


def _section(title: str, rows: list[Difference]) -> list[str]:
    """Rows with equal texts share a line: of most variables only the name is known."""
    shared: dict[tuple[str, str, str, str | None], list[str]] = {}
    for row in rows:
        shared.setdefault((row.group, row.host, row.worker, row.consequence), []).append(row.field)
    told = ["", title] if rows else []
    for (group, host, worker, consequence), fields in shared.items():
        names = ", ".join(fields)
        told.append(f"  {group}: {names}: {host} → {worker}"[:MAX_LINE])
        told += [f"    so {consequence}"] if consequence else []
    return told
