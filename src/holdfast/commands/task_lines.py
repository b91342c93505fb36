"""A task and its runs in one line each."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run, Task, TaskEvent


def task_line(task: "Task") -> str:
    return f"{task.id}  {task.status:<15} {task.priority:>4}  {task.assignee or '-':<12} {task.title}"


def run_line(run: "Run") -> str:
    used = f"{used_words(run):<14}"
    return f"  run {run.generation} {run.id}  {run.outcome or 'running':<16} {used} {run_said(run)}"


def run_said(run: "Run") -> str:
    """How it ended, or how far it is."""
    return run.error or run.summary or (f"looks stuck: {run.stuck}" if run.stuck else run.note)


def used_words(run: "Run") -> str:
    """What a run has used; a zero is what nobody said."""
    from holdfast.board.rules.budget import describe, of_run

    return describe(of_run(run))


def event_line(event: "TaskEvent") -> str:
    told = " ".join(f"{name}={value}" for name, value in event.payload.items() if value not in ("", [], None))
    return f"{event.seq:>6}  {event.task_id or '-'}  {event.kind:<16} {event.actor}  {told}".rstrip()


def answer(task: "Task") -> dict[str, object]:
    """What a command says that changed a task."""
    return {"task": task, "text": [task_line(task)]}
