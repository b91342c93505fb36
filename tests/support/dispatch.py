"""What tests of the dispatcher share."""

from collections.abc import Sequence

from holdfast.board.rows import Comment, Detail, ParentResult, Run, Task
from holdfast.board.transitions import Status


def a_task(*, body: str = "", **more: object) -> Task:
    values: dict[str, object] = {
        **{"id": "t_1", "board": "b", "title": "do it", "body": body, "assignee": "script"},
        **{"status": Status.RUNNING, "priority": 0, "created_by": "me", "created_by_run": None, "created_ms": 0},
        **{"status_ms": 0, "ended_ms": None, "open_parents": 0, "run_id": "r_1", "generation": 1, "attempts": 1},
        **{"max_attempts": 3, "wake_ms": None, "question": None, "options": [], "waiting_for": "", "reason": ""},
        **{"result": None, "version": 1},
    }
    return Task(**{**values, **more})  # type: ignore[arg-type]  # a test that errs here fails here


def a_run(*, error: str | None = None, generation: int = 1) -> Run:
    return Run(
        **{"id": f"r_{generation}", "task_id": "t_1", "board": "b", "generation": generation, "worker": "w"},
        **{"host": "h", "profile": "script", "lease_until_ms": 0, "heartbeat_ms": 0, "note": "", "started_ms": 0},
        **{"ended_ms": None, "outcome": None, "failure": None, "summary": None, "metadata": {}, "error": error},
    )


def a_detail(
    *,
    body: str = "",
    comments: Sequence[Comment] = (),
    results: Sequence[ParentResult] = (),
    errors: Sequence[str] = (),
) -> Detail:
    return Detail(
        task=a_task(body=body),
        parents=[],
        children=[],
        comments=list(comments),
        runs=[a_run(error=error, generation=number) for number, error in enumerate(errors, 1)],
        events=[],
        results=list(results),
        files=[],
    )
