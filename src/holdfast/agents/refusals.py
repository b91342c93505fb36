"""A call that the watcher saw refused, as evidence: whose file it is, and what would help. Pure module."""

from holdfast.agents.agent import Agent, launch, relocation_of, state_of
from holdfast.agents.book import Record
from holdfast.agents.evidence import MAX_SEEN, Denied, Evidence, Source
from holdfast.wire.processes import Denied as Refusal


def evidence_of(refusal: Refusal, agent: Agent, record: Record, *, state: str, at: float) -> Evidence:
    """With the role of the path in the CLI's state, and the variable that would move it, if there is one."""
    moved = launch(agent, state=state).environment if record.relocated else {}
    kept = state_of(agent, refusal.path, home=record.home, work=record.cwd, environment=moved)
    relocation = relocation_of(agent, kept, state=state) if kept is not None and not record.relocated else ""
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
    )
    seen = f"{refusal.comm} ({refusal.pid}): {refusal.syscall} {refusal.path}: {refusal.errno}"
    return Evidence(Source.DENIAL, at, denied, seen[:MAX_SEEN])
