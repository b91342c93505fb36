"""A task and its runs in one line each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run, Task, TaskEvent
    from holdfast.commands.output import Answer


def task_line(task: "Task") -> str:
    return f"{task.id}  {task.status:<15} {task.priority:>4}  {task.assignee or '-':<12} {task.title}"


def run_line(run: "Run") -> str:
    used = f"{used_words(run):<14}"
    place = f" on {run.environment}" if run.environment else ""
    return f"  run {run.generation} {run.id}  {run.ending:<16} {used}{place} {run_said(run)}"


def run_said(run: "Run") -> str:
    """How it ended, or how far it is."""
    return run.error or run.summary or (f"looks stuck: {run.stuck}" if run.stuck else run.note)


def used_words(run: "Run") -> str:
    """What a run has used; a zero is what nobody said."""
    from holdfast.board.rules.budget import describe, of_run

    return describe(of_run(run))


def budget_lines(task: "Task", runs: "list[Run]") -> list[str]:
    """What a task has used of its budgets, for people; of all runs there are to see."""
    from holdfast.board.rules.budget import BudgetUse, describe, dollars, of_run

    bounds = [f"{task.max_tokens} tokens"] if task.max_tokens is not None else []
    bounds += [dollars(task.max_cost)] if task.max_cost is not None else []
    used = BudgetUse(*map(sum, zip(*map(of_run, runs), strict=True))) if runs else BudgetUse()
    if not bounds and used == BudgetUse():
        return []
    return [f"  used {describe(used)}" + (f" of {', '.join(bounds)}" if bounds else "")]


def event_line(event: "TaskEvent") -> str:
    members = " ".join(
        f"{name}={value}" for name, value in event.payload.items() if value not in ("", [], None)
    )
    return f"{event.seq:>6}  {event.task_id or '-'}  {event.kind:<16} {event.actor}  {members}".rstrip()


def network_lines(event: "TaskEvent") -> list[str]:
    """What a run reached by name, and what it was refused."""
    told = event.payload
    lines = [
        f"reached {row['host']}:{row['port']}: {row['connections']} connections, {row['sent']} bytes sent, "
        f"{row['received']} received, {(row['to_ms'] - row['from_ms']) / 1000:.1f} s"
        for row in _rows(told.get("sent"))
    ]
    lines += [
        f"was refused {row['host']}{'' if row['port'] is None else ':' + str(row['port'])}"
        f" ({row['count']} times): {row['rule']}{'; to allow it: ' + row['grant'] if row['grant'] else ''}"
        for row in _rows(told.get("refused"))
    ]
    if not told.get("counted"):
        return ["had the whole network; nobody counted what went out"] if told.get("whole") else []
    return lines + ([f"and {told['more']} more hosts"] if told.get("more") else [])


def _rows(value: object) -> "list[dict[str, Any]]":
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def answer(task: "Task", more: Sequence[str] = ()) -> "Answer":
    """What a command says that changed a task, and what else a person should know."""
    return {"task": task, "text": [task_line(task), *more]}
