"""A call that the watcher saw refused, as evidence: whose file it is, and what would help. Pure module."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.agents.catalog.agent import Agent, launch, relocation_of, state_of
from holdfast.agents.evidence.evidence import MAX_SEEN, Denied, Evidence, Source
from holdfast.wire.processes import DeniedCall as Refusal


class Tally:
    """How many refusals of each kind are known: the watcher tells totals, evidence stands for what is new."""

    def __init__(self, known: Iterable[Evidence]) -> None:
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        for item in known:
            if isinstance(item.claim, Denied):
                self._counts[_key(item.claim)] += item.claim.count

    def fresh(self, refusal: Refusal) -> int:
        """How many of these are new."""
        key = _key(refusal)
        more = max(0, refusal.count - self._counts[key])
        self._counts[key] += more
        return more


def _key(denied: Denied | Refusal) -> tuple[str, str, str, str]:
    return (denied.syscall, denied.access, denied.errno, denied.path)


@dataclass(frozen=True, slots=True)
class Whose:
    """Where a worker's own things are: its user's home, its work tree, the state directory we gave it."""

    agent: Agent
    home: str
    work: str
    state: str
    relocated: bool


def evidence_of(refusal: Refusal | Denied, whose: Whose, at: float) -> Evidence:
    """With the role of the path in the CLI's state, and the variable that would move it, if there is one."""
    agent, state = whose.agent, whose.state
    moved = launch(agent, state=state).environment if whose.relocated else {}
    kept = state_of(agent, refusal.path, home=whose.home, work=whose.work, environment=moved)
    relocation = relocation_of(agent, kept, state=state) if kept is not None and not whose.relocated else ""
    denied = Denied(
        access=refusal.access,
        path=refusal.path,
        errno=refusal.errno,
        syscall=refusal.syscall,
        predicted=refusal.predicted,
        rule=refusal.rule or "",
        grant=refusal.grant or "",
        relocation=relocation,
        role=kept.role if kept is not None else "",
        pid=refusal.pid,
        comm=refusal.comm,
        count=refusal.count,
        host=isinstance(refusal, Denied) and refusal.host,
    )
    seen = f"{refusal.comm or 'process'} ({refusal.pid}): {refusal.syscall} {refusal.path}: {refusal.errno}"
    return Evidence(Source.DENIAL, at, denied, seen[:MAX_SEEN])
