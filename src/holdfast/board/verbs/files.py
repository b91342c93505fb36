"""Files of a board: attachments of a task, and files kept with a run."""

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules.rows import MAX_ATTACHMENTS, MAX_FILE, MAX_KEPT, File, Task, file_name
from holdfast.board.verbs import ledger
from holdfast.errors import Conflict, InvalidRequest, NotFound, StoreDamaged, UsageError


def attach(tx: Transaction, task_id: str, name: str, data: bytes, *, who: str = "person") -> File:
    """Lock the task and attach a file, as `add` does."""
    return add(tx, ledger.lock_task(tx, task_id), name, data, who=who)


def add(tx: Transaction, task: Task, name: str, data: bytes, *, who: str, run: str | None = None) -> File:
    """Attach a file to the task, which is locked. Adding the same file again changes nothing.

    Raises:
        Conflict: another file has this name.
    """
    sha256 = ledger.digest(_check_size(data))
    there = {file.name: file for file in list_files(tx, task.id, None)}
    if name in there:
        if there[name].sha256 != sha256:
            raise Conflict(f"{task.id} has another file {name}", remedy="use another name")
        return there[name]
    if len(there) >= MAX_ATTACHMENTS:
        raise InvalidRequest(f"a task has at most {MAX_ATTACHMENTS} attachments")
    made = _put(tx, task.id, None, name, data, sha256, who=who)
    tx.log(task.board, "attached", who, task=task.id, run=run, name=name, size=made.size)
    return made


def keep(tx: Transaction, run_id: str, name: str, data: bytes) -> File:
    """Keep a file of a run, also after its end; the same name replaces it, as when a step is repeated."""
    task = ledger.lock_task(tx, ledger.run(tx, run_id).task_id)
    sha256 = ledger.digest(_check_size(data))
    there = {file.name: file for file in list_files(tx, task.id, run_id)}
    if name in there and there[name].sha256 == sha256:
        return there[name]
    if len(there) >= MAX_KEPT and name not in there:
        raise InvalidRequest(f"of a run at most {MAX_KEPT} files are kept")
    made = _put(tx, task.id, run_id, name, data, sha256, who="board")
    tx.log(task.board, "kept", "board", task=task.id, run=run_id, name=name, size=made.size)
    return made


def list_files(tx: Transaction, task_id: str, run_id: str | None) -> list[File]:
    """The attachments of a task, or the files kept with one of its runs, by name."""
    return [row_of(File, row) for row in tx.all("files_of", task=task_id, run=run_id or "")]


def content(tx: Transaction, task_id: str, run_id: str | None, name: str) -> bytes:
    """The content of a file. Raises NotFound, or StoreDamaged when it is not what was stored."""
    row = tx.one("file_get", task=task_id, run=run_id or "", name=name)
    if row is None:
        raise NotFound(f"there is no file {name} of {run_id or task_id}")
    data = row["data"]
    if not isinstance(data, bytes) or ledger.digest(data) != row["sha256"]:
        raise StoreDamaged(
            f"the file {name} of {run_id or task_id} is damaged", remedy="holdfast board restore"
        )
    return data


def _check_size(data: bytes) -> bytes:
    if len(data) > MAX_FILE:
        raise UsageError(f"a file has at most {MAX_FILE} bytes")
    return data


def _put(
    tx: Transaction, task: str, run: str | None, name: str, data: bytes, sha256: str, *, who: str
) -> File:
    row = tx.row(
        "file_put",
        id=ledger.new_id("f"),
        task=task,
        run=run,
        name=file_name(name),
        size=len(data),
        sha256=sha256,
        author=who,
        now=tx.now_ms,
        data=data,
    )
    return row_of(File, row)
