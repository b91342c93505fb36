"""The recent activity of a board, in numbers for people and for Prometheus. Pure module.

Tasks are counted as they are. The results of runs come from the newest events of the board, so that the cost
is the same for a board of any age. They are thus gauges over that window, not counters since the beginning.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from holdfast.board.rules.budget import MILLION, BudgetUse
from holdfast.board.rules.rows import TaskEvent
from holdfast.board.rules.transitions import Move, TaskStatus

WINDOW: Final = 10_000  # events: some thousand runs, and some ten milliseconds of work
BUCKETS_S: Final = (0.1, 0.5, 1, 5, 30, 60, 300, 1800, 3600)  # from an immediate start to a lack of capacity


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one profile with the same outcome; without an outcome they have not ended."""

    profile: str
    outcome: str | None
    failure: str | None
    count: int
    told: int  # how many of them reported their usage
    tokens: int
    cost: int
    turns: int


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest events of a board show."""

    events: int
    runs: list[Runs]
    waits_ms: list[int]  # how long each claimed task had been ready


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of the recent runs of one profile, and how many reported it."""

    runs: int
    told: int
    tokens: int
    cost: int
    turns: int


def waits_ms(events: Iterable[TaskEvent]) -> list[int]:
    """The times from ready to claimed, for every claim with both moments among these events."""
    ready: dict[str | None, int] = {}
    found = []
    for event in events:
        if _makes_ready(event):
            ready[event.task_id] = event.at_ms
        elif event.kind == Move.CLAIM and (since := ready.pop(event.task_id, None)) is not None:
            found.append(max(0, event.at_ms - since))
    return found


def profiles(recent: Recent) -> dict[str, Profile]:
    """The usage by profile."""
    found: dict[str, Profile] = {}
    for each in recent.runs:
        before = found.get(each.profile, Profile(runs=0, told=0, tokens=0, cost=0, turns=0))
        found[each.profile] = Profile(
            runs=before.runs + each.count,
            told=before.told + each.told,
            tokens=before.tokens + each.tokens,
            cost=before.cost + each.cost,
            turns=before.turns + each.turns,
        )
    return found


def used(profile: Profile) -> BudgetUse:
    return BudgetUse(profile.tokens, profile.cost, profile.turns)


def exposition(
    board: str, tasks: Mapping[str, int], oldest_ready_ms: int | None, recent: Recent
) -> list[str]:
    """The metrics as lines of the Prometheus text format."""
    return [line for group in _groups(board, tasks, oldest_ready_ms, recent) for line in group]


def _groups(
    board: str, tasks: Mapping[str, int], oldest_ready_ms: int | None, recent: Recent
) -> Iterator[list[str]]:
    yield _metric(
        *("holdfast_tasks", "Tasks by status."),
        [({"board": board, "status": status}, count) for status, count in tasks.items()],
    )
    yield _metric(
        *("holdfast_oldest_ready_seconds", "How long the oldest ready task has been so; 0 without any."),
        [({"board": board}, (oldest_ready_ms or 0) / 1000)],
    )
    yield _metric(
        *("holdfast_recent_events", "The newest events, which what is called recent is read off."),
        [({"board": board}, recent.events)],
    )
    yield _metric(
        *("holdfast_recent_runs", "Recent runs by what became of them."),
        [
            (
                {
                    "board": board,
                    "profile": each.profile,
                    "outcome": each.outcome or "running",
                    "failure": each.failure or "",
                },
                each.count,
            )
            for each in recent.runs
        ],
    )
    by_profile = profiles(recent).items()
    for name, words, amounts in (
        (
            "tokens",
            "Tokens that recent runs used, as far as their CLIs say.",
            [one.tokens for _, one in by_profile],
        ),
        ("cost_dollars", "Dollars, likewise.", [one.cost / MILLION for _, one in by_profile]),
        ("turns", "Turns, likewise.", [one.turns for _, one in by_profile]),
        ("runs_that_say_usage", "Recent runs of which that is known.", [one.told for _, one in by_profile]),
    ):
        labels = [{"board": board, "profile": profile} for profile, _ in by_profile]
        yield _metric(f"holdfast_recent_{name}", words, zip(labels, amounts, strict=True))
    yield _histogram(board, recent.waits_ms)


def _metric(name: str, words: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    head = [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
    return head + [f"{name}{_labels(labels)} {value:.15g}" for labels, value in rows]


def _histogram(board: str, waits: list[int]) -> list[str]:
    name = "holdfast_recent_wait_seconds"
    lines = [f"# HELP {name} How long recently claimed tasks had been ready.", f"# TYPE {name} histogram"]
    for bucket in BUCKETS_S:
        below = sum(wait <= bucket * 1000 for wait in waits)
        lines.append(f"{name}_bucket{_labels({'board': board, 'le': f'{bucket:g}'})} {below}")
    lines.append(f"{name}_bucket{_labels({'board': board, 'le': '+Inf'})} {len(waits)}")
    lines.append(f"{name}_sum{_labels({'board': board})} {sum(waits) / 1000:.15g}")
    return [*lines, f"{name}_count{_labels({'board': board})} {len(waits)}"]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _makes_ready(event: TaskEvent) -> bool:
    """Whether a task became ready by this event.

    A creation event has the status, and a move event its target, except the promotion of a task with all
    parents done.
    """
    if event.kind == "created":
        return event.payload.get("status") == TaskStatus.READY
    return event.kind == Move.PROMOTE or event.payload.get("to") == TaskStatus.READY
