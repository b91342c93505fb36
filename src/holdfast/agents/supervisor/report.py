"""A worker as everybody outside sees it: one JSON object with a stable schema."""

import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

import msgspec

from holdfast.agents.catalog import resets
from holdfast.agents.evidence.evidence import Denied, Evidence, Exited, Result, Trouble, Used
from holdfast.agents.worker.worker import Worker, now

SCHEMA_VERSION: Final = 1
MAX_DENIALS: Final = 20  # in one report, which is sent with every change


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
        "denials": _denials(worker.evidence()),
        "usage": _usage(worker.evidence()),
        "calls": _calls(worker),
        "limitEndsInSeconds": _limit_s(worker.evidence(), at),
        "cwd": record.cwd,
        "argv": record.argv,
        "environment": record.environment,
        "tty": record.tty,
        "acp": record.acp,
        "asks": _asked(worker),
        "preflight": record.preflight,
        "unwatched": record.unwatched,
        "trace": record.trace,
        "untraced": record.untraced,
        "pane": record.pane,
        "pid": record.pid,
        "exitCode": _exit_code(worker.evidence()),
        "createdAt": record.created_at,
        "backend": record.backend,
        "weakened": record.weakened,
        "network": record.network,
        "writable": record.writable,
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


def _denials(items: list[Evidence]) -> list[dict[str, Any]]:
    """What the sandbox refused, the newest first, each path and access once."""
    found: dict[tuple[str, str], Denied] = {}
    for item in reversed(items):
        if isinstance(item.claim, Denied):
            found.setdefault((item.claim.path, item.claim.access), item.claim)
    return [msgspec.to_builtins(denied) for denied in list(found.values())[:MAX_DENIALS]]


def _exit_code(items: list[Evidence]) -> int | None:
    """None while it runs, and of one that was ended or that nobody saw end."""
    codes = [item.claim.code for item in items if isinstance(item.claim, Exited)]
    return codes[-1] if codes else None


def _calls(worker: Worker) -> dict[str, Any] | None:
    """Its tool calls, for whoever asks whether it gets anywhere; None where they cannot be seen."""
    calls = worker.channel.calls()
    if calls is None:
        return None
    return {
        "count": calls.count,
        "fresh": calls.fresh,
        "inARow": calls.in_a_row,
        "last": calls.last,
        "recent": calls.recent,
        "different": calls.different,
    }


def _limit_s(items: list[Evidence], at: float) -> float | None:
    """How long a limit of its provider lasts that it ran into, where the last error announces that."""
    for item in reversed(items):
        if isinstance(item.claim, Trouble | Result) and item.claim.announced:
            now_ = datetime.now(UTC)
            end = resets.due(item.claim.announced, said=now_ - timedelta(seconds=at - item.at), zones=_zone)
            return None if end is None else round(max(0.0, (end - now_).total_seconds()), 1)
    return None


def _zone(name: str) -> tzinfo | None:
    if not name:
        return datetime.now(UTC).astimezone().tzinfo
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None


def _usage(items: list[Evidence]) -> dict[str, Any] | None:
    """As far as it said; what it said before is not taken back by a result that counts less."""
    found = [item.claim.usage for item in items if isinstance(item.claim, Result | Used) and item.claim.usage]
    if not found:
        return None
    costs = [usage.cost_usd for usage in found if usage.cost_usd is not None]
    return {
        "inputTokens": max(usage.input_tokens for usage in found),
        "outputTokens": max(usage.output_tokens for usage in found),
        "cachedTokens": max(usage.cached_tokens for usage in found),
        "costUsd": max(costs, default=None),
        "turns": max(usage.turns for usage in found) or None,
    }
