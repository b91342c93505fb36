"""Runs, comments and events of a board of Hermes, as they are kept here. Pure module.

History is never told anew: events keep their times, and their actor is `hermes`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from holdfast.board.hermes import hermesrow
from holdfast.board.hermes.hermesrow import (
    ImportPlan,
    Known,
    Row,
    absent,
    epoch_ms,
    integer,
    json_object,
    text,
)

# Its outcome → ours, with the class of the failure.
OUTCOMES: Final[dict[str, tuple[str, str | None]]] = {
    "completed": ("completed", None),
    "blocked": ("blocked", None),
    "scheduled": ("superseded", None),
    "crashed": ("failed", "infra"),
    "timed_out": ("failed", "task"),
    "stale": ("lost", "infra"),
    "reclaimed": ("lost", "infra"),
    "rate_limited": ("failed", "quota"),
    "spawn_failed": ("failed", "infra"),
    "gave_up": ("failed", "task"),
}
_BY_STATUS: Final = {"done": "completed", "released": "reclaimed", "failed": "crashed"}  # of older versions

EVENTS: Final = {
    "created": "created",
    "promoted": "promote",
    "promoted_manual": "promote",
    "claimed": "claim",
    "completed": "complete",
    "blocked": "block",
    "dependency_wait": "hold",
    "unblocked": "unblock",
    "specified": "specify",
    "assigned": "assigned",
    "linked": "linked",
    "unlinked": "unlinked",
    "commented": "commented",
    "archived": "archive",
}
# Written again and again while nothing happens; a run's row keeps the last of them.
FOLDED: Final = frozenset({"heartbeat", "claim_extended", "respawn_guarded"})


def runs(
    made: ImportPlan,
    rows: list[Row],
    new: Mapping[str, Row],
    known: Mapping[str, Known],
    board: str,
    events: Mapping[str, list[Row]],
    now_ms: int,
) -> dict[int, str]:
    """What each run of the source is called here."""
    names: dict[int, str] = {}
    generations: Counter[str] = Counter()
    for row in sorted(rows, key=lambda run: (epoch_ms(run.get("started_at")) or 0, integer(run, "id"))):
        task, number = text(row, "task_id"), integer(row, "id")
        if task not in new:
            made.counts["runs"][absent(task, known)] += 1
            continue
        generations[task] += 1
        names[number] = f"r_{task.removeprefix('t_')}_{number}"
        metadata = json_object(row, "metadata")
        theirs, outcome, failure = _outcome(row, metadata)
        made.counts["runs"][f"{theirs} → {outcome}" + (f" ({failure})" if failure else "")] += 1
        started = epoch_ms(row.get("started_at")) or now_ms
        ended = epoch_ms(row.get("ended_at")) or now_ms
        notes = [
            str(json_object(event, "payload").get("note", ""))
            for event in events[task]
            if text(event, "kind") == "heartbeat" and event.get("run_id") == row.get("id")
        ]
        made.runs.append(
            {
                "id": names[number],
                "task_id": task,
                "board": board,
                "generation": generations[task],
                "worker": text(row, "claim_lock")[: hermesrow.MAX_NAME] or "hermes",
                "host": "",
                "profile": text(row, "profile")[: hermesrow.MAX_NAME],
                "lease_until_ms": epoch_ms(row.get("claim_expires")) or ended,
                "heartbeat_ms": epoch_ms(row.get("last_heartbeat_at")) or started,
                "note": hermesrow.bounded(next((note for note in reversed(notes) if note), "")).text,
                "started_ms": started,
                "ended_ms": ended,
                "outcome": outcome,
                "failure": failure,
                "summary": hermesrow.bounded(text(row, "summary")).text or None,
                "metadata": hermesrow.metadata(
                    metadata | {"hermes": {"run": number, "outcome": theirs, "pid": row.get("worker_pid")}}
                ),
                "error": hermesrow.bounded(text(row, "error")).text or None,
            }
        )
    return names


def _outcome(row: Row, metadata: Mapping[str, object]) -> tuple[str, str, str | None]:
    """Its outcome, ours, and the class of the failure."""
    theirs = text(row, "outcome") or _BY_STATUS.get(text(row, "status"), text(row, "status"))
    if theirs == "crashed" and metadata.get("protocol_violation"):
        return "crashed (no report)", "handoff_failed", "handoff"
    return theirs, *OUTCOMES.get(theirs, ("superseded", None))


def comments(
    made: ImportPlan, rows: list[Row], new: Mapping[str, Row], known: Mapping[str, Known], now_ms: int
) -> None:
    numbers: Counter[str] = Counter()
    for row in rows:
        task = text(row, "task_id")
        if task not in new:
            made.counts["comments"][absent(task, known)] += 1
            continue
        numbers[task] += 1
        body = hermesrow.bounded(text(row, "body"))
        made.counts["comments"]["cut: too long" if body.cut else "kept"] += 1
        made.comments.append(
            {
                "task_id": task,
                "number": numbers[task],
                "author": text(row, "author")[: hermesrow.MAX_NAME],
                "body": body.text,
                "at_ms": epoch_ms(row.get("created_at")) or now_ms,
                "run_id": None,
            }
        )


def events(
    made: ImportPlan,
    rows: list[Row],
    new: Mapping[str, Row],
    known: Mapping[str, Known],
    board: str,
    names: Mapping[int, str],
    now_ms: int,
) -> None:
    for row in rows:
        task, theirs = text(row, "task_id"), text(row, "kind")
        if task not in new or theirs in FOLDED:
            made.counts["events"][
                f"{theirs}: only the run's last is kept" if task in new else absent(task, known)
            ] += 1
            continue
        kind = EVENTS.get(theirs) or f"hermes_{theirs[: hermesrow.MAX_NAME]}"
        made.counts["events"][f"{theirs} → {kind}"] += 1
        payload = json_object(row, "payload") | {"hermes_event": integer(row, "id")}
        made.events.append(
            {
                "board": board,
                "task_id": task,
                "run_id": names.get(integer(row, "run_id")),
                "kind": kind,
                "actor": "hermes",
                "at_ms": epoch_ms(row.get("created_at")) or now_ms,
                "payload": hermesrow.metadata(payload),
            }
        )
