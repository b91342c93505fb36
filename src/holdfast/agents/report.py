"""A worker as everybody outside sees it: one JSON object with a stable schema."""

from typing import Any, Final

from holdfast.agents.evidence import Evidence, Result, Usage
from holdfast.agents.worker import Worker, now

SCHEMA_VERSION: Final = 1


def report(worker: Worker) -> dict[str, Any]:
    """What it is, what it is doing, why we say so, and what holds for it."""
    record, status = worker.record, worker.status
    at = now()
    return {
        "schemaVersion": SCHEMA_VERSION,
        "id": record.id,
        "agent": record.agent,
        "state": status.state.value,
        "detail": status.detail,
        "about": status.about,
        "failure": status.failure.value if status.failure else None,
        "flags": sorted(status.flags),
        "rule": status.rule,
        "forSeconds": round(max(0.0, at - status.since), 1),
        "evidence": [_shown(item, at) for item in status.evidence],
        "contradictions": list(status.contradictions),
        "usage": _usage(worker.evidence()),
        "cwd": record.cwd,
        "argv": record.argv,
        "tty": record.tty,
        "acp": record.acp,
        "asks": _asked(worker),
        "preflight": record.preflight,
        "unwatched": record.unwatched,
        "pane": record.pane,
        "pid": record.pid,
        "createdAt": record.created_at,
        "backend": record.backend,
        "weakened": record.weakened,
    }


def _asked(worker: Worker) -> dict[str, Any] | None:
    """The structured request that `approve` would answer."""
    for wants in worker.asked()[:1]:
        options = [{"id": option.id, "kind": option.kind, "name": option.name} for option in wants.options]
        return {"request": wants.request, "question": wants.question, "options": options}
    return None


def _shown(item: Evidence, at: float) -> dict[str, Any]:
    return {
        "source": item.source.name.lower(),
        "claim": type(item.claim).__name__,
        "secondsAgo": round(max(0.0, at - item.at), 1),
        "seen": item.seen,
    }


def _usage(items: list[Evidence]) -> dict[str, Any] | None:
    found: Usage | None = None
    for item in items:
        if isinstance(item.claim, Result) and item.claim.usage is not None:
            found = item.claim.usage
    if found is None:
        return None
    return {
        "inputTokens": found.input_tokens,
        "outputTokens": found.output_tokens,
        "cachedTokens": found.cached_tokens,
        "costUsd": found.cost_usd,
    }
