"""A board as Hermes Agent makes it, run by its own interpreter: `python hermes_board.py FILE`.

Only its own functions write. Prints the ids by what they are for, as JSON.
"""

import json
import sys
from pathlib import Path

from hermes_cli import kanban_db as kanban  # type: ignore[import-not-found]  # is in its environment only


def main(file: str) -> None:
    db = kanban.connect(Path(file))
    ids: dict[str, str] = {}

    def task(name: str, **wishes: object) -> str:
        ids[name] = kanban.create_task(db, title=name, assignee="Coder", created_by="ann", **wishes)
        return ids[name]

    done = task("done", body="do it\nwell", priority=7, tenant="acme", skills=["git"], max_retries=2)
    waits = task("waits", parents=[done])
    task("ready", parents=[done], idempotency_key="k1", workspace_kind="dir", workspace_path="/srv/x")
    running, blocked, spent = task("running"), task("blocked"), task("spent", max_retries=1)
    silent, parked, gone = task("silent"), task("parked"), task("gone")
    task("triage", triage=True)
    kanban.link_tasks(db, blocked, waits)

    assert kanban.claim_task(db, done)
    kanban.heartbeat_worker(db, done, note="half way")
    kanban.add_comment(db, done, "bob", "looks good")
    kanban.add_comment(db, done, "ann", "thanks")
    assert kanban.complete_task(db, done, summary="all done", metadata={"tests": 3})
    assert kanban.claim_task(db, running)
    assert kanban.claim_task(db, blocked)
    assert kanban.block_task(db, blocked, reason="which database?", kind="needs_input")
    assert kanban.claim_task(db, spent)
    kanban._record_task_failure(db, spent, error="pid 1 not alive", outcome="crashed", end_run=True)
    assert kanban.schedule_task(db, parked, reason="later")
    assert kanban.archive_task(db, gone)
    kanban.store_attachment_bytes(db, done, "notes.txt", b"read me", uploaded_by="ann")
    kanban.add_notify_sub(db, task_id=done, platform="chat", chat_id="1")
    assert kanban.claim_task(db, silent)
    kanban._record_task_failure(
        *(db, silent),
        error="exited 0 without a report",
        outcome="crashed",
        force_trip=True,
        end_run=True,
        event_payload_extra={"protocol_violations": 3},
    )
    sys.stdout.write(json.dumps(ids))


main(*sys.argv[1:])
