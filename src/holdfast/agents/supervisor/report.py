"""A worker's report, made of what its supervisor knows."""

import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from holdfast.agents.catalog import textlines
from holdfast.agents.evidence.evidence import Denied, Evidence, Exited, Result, Trouble, Used
from holdfast.agents.supervisor.messages import (
    Question,
    ReportedCalls,
    ReportedUsage,
    ShownEvidence,
    WorkerReport,
)
from holdfast.agents.worker.worker import Worker, now

MAX_DENIALS: Final = 20  # in one report, which is sent with every change


def report(worker: Worker) -> WorkerReport:
    record, status, items = worker.record, worker.status, worker.evidence()
    at = now()
    return WorkerReport(
        id=record.id,
        agent=record.agent,
        state=status.state,
        detail=status.detail,
        about=status.about,
        failure=status.failure.value if status.failure else None,
        flags=sorted(status.flags),
        rule=status.rule,
        for_seconds=round(max(0.0, at - status.since), 1),
        evidence=[_shown(item, at) for item in status.evidence],
        contradictions=list(status.contradictions),
        denials=_denials(items),
        usage=_usage(items),
        calls=_calls(worker),
        limit_ends_in_seconds=_limit_s(items, at),
        cwd=record.cwd,
        argv=record.argv,
        environment=record.environment,
        tty=record.tty,
        acp=record.acp,
        asks=_asked(worker),
        preflight=record.preflight,
        unwatched=record.unwatched,
        trace=record.trace,
        untraced=record.untraced,
        pane=record.pane,
        pid=record.pid,
        exit_code=_exit_code(items),
        created_at=record.created_at,
        backend=record.backend,
        weakened=record.weakened,
        network=record.network,
        writable=record.writable,
    )


def _asked(worker: Worker) -> Question | None:
    for wants in worker.asked()[:1]:
        return Question(request=wants.request, question=wants.question, options=list(wants.options))
    return None


def _shown(item: Evidence, at: float) -> ShownEvidence:
    source, claim = item.source.name.lower(), type(item.claim).__name__
    ago = round(max(0.0, at - item.at), 1)
    return ShownEvidence(source=source, claim=claim, seconds_ago=ago, seen=item.seen)


def _denials(items: list[Evidence]) -> list[Denied]:
    """What the sandbox refused, the newest first, each path and access once."""
    found: dict[tuple[str, str], Denied] = {}
    for item in reversed(items):
        if isinstance(item.claim, Denied):
            found.setdefault((item.claim.path, item.claim.access), item.claim)
    return list(found.values())[:MAX_DENIALS]


def _exit_code(items: list[Evidence]) -> int | None:
    codes = [item.claim.code for item in items if isinstance(item.claim, Exited)]
    return codes[-1] if codes else None


def _calls(worker: Worker) -> ReportedCalls | None:
    calls = worker.channel.calls()
    if calls is None:
        return None
    return ReportedCalls(
        count=calls.count,
        fresh=calls.fresh,
        in_a_row=calls.in_a_row,
        last=calls.last,
        recent=calls.recent,
        different=calls.different,
    )


def _limit_s(items: list[Evidence], at: float) -> float | None:
    """How long a limit of its provider lasts that it ran into, where the last error announces that."""
    for item in reversed(items):
        if isinstance(item.claim, Trouble | Result) and item.claim.announced:
            now_ = datetime.now(UTC)
            end = textlines.due(
                item.claim.announced, said=now_ - timedelta(seconds=at - item.at), zones=_zone
            )
            return None if end is None else round(max(0.0, (end - now_).total_seconds()), 1)
    return None


def _zone(name: str) -> tzinfo | None:
    if not name:
        return datetime.now(UTC).astimezone().tzinfo
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None


def _usage(items: list[Evidence]) -> ReportedUsage | None:
    """As far as it said; what it said before is not taken back by a result that counts less."""
    found = [item.claim.usage for item in items if isinstance(item.claim, Result | Used) and item.claim.usage]
    if not found:
        return None
    return ReportedUsage(
        input_tokens=max(usage.input_tokens for usage in found),
        output_tokens=max(usage.output_tokens for usage in found),
        cached_tokens=max(usage.cached_tokens for usage in found),
        cost_usd=max((usage.cost_usd for usage in found if usage.cost_usd is not None), default=None),
        turns=max(usage.turns for usage in found) or None,
    )
