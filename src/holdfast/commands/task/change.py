"""`holdfast task`: commands that change a task. Parse, call, print."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from holdfast.commands.clickoptions import duration
from holdfast.commands.output import Answer, AnswerCommand
from holdfast.commands.store import answer, board_option, current_home, user_name, with_store
from holdfast.errors import HoldfastError, NotFound, OperationFailed, UsageError

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Task
    from holdfast.board.store import Store

# Same as in board/transitions.py, which is imported only when needed; a test compares them.
MOVES: Final = (
    *("archive", "block", "cancel", "complete", "request_changes", "rethink", "retry", "schedule", "specify"),
    "unblock",
)


class WorkspacePlace(NamedTuple):
    """The workspace of a task."""

    kind: str
    path: str


def _parse_place(text: str) -> WorkspacePlace:
    """Parse scratch, dir:PATH or worktree:PATH; the type of an option."""
    kind, _, path = text.partition(":")
    if kind not in ("scratch", "dir", "worktree") or (kind == "scratch") == bool(path):
        raise click.BadParameter(f"{text!r} is not scratch, dir:PATH or worktree:PATH")
    return WorkspacePlace(kind, os.path.abspath(path) if path else "")


class BudgetBound(NamedTuple):
    """A bound that was given; None means unlimited."""

    most: int | None


def _parse_tokens(text: str) -> BudgetBound:
    """Parse a number of tokens or `none`; the type of an option."""
    if text == "none":
        return BudgetBound(None)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise click.BadParameter(f"{text!r} is no number of tokens")
    return BudgetBound(int(text))


def _parse_dollars(text: str) -> BudgetBound:
    """Parse an amount of dollars or `none`; the type of an option."""
    from holdfast.board.rules.budget import millionths

    if text == "none":
        return BudgetBound(None)
    try:
        cost = millionths(float(text))
    except ValueError:
        cost = 0
    if not cost:
        raise click.BadParameter(f"{text!r} is no amount of dollars such as 2.50")
    return BudgetBound(cost)


_tokens_option = click.option(
    "--max-tokens",
    type=_parse_tokens,
    metavar="N",
    help="Limit the tokens of all its runs, or `none`; at the limit you are asked.",
)
_cost_option = click.option(
    "--max-cost",
    type=_parse_dollars,
    metavar="USD",
    help="Limit the cost of all its runs in dollars, as its CLI reports it.",
)
_in_option = click.option(
    "--in", "in_s", type=duration, metavar="DURATION", help="Wait this long first: 90s, 30m, 7d."
)
_reason_option = click.option("--reason", default="", help="The reason, kept with the task.")
_pool_option = click.option(
    "--pool", metavar="NAME", help="The pool its runs belong to; `board cap --pool` limits a pool."
)
_environment_option = click.option(
    "--env",
    "environment",
    metavar="NAME",
    help="The environment its workers run on [default: as its profile says]. See `holdfast environment`.",
)
_workspace_option = click.option(
    "--workspace",
    "place",
    type=_parse_place,
    metavar="WHERE",
    help="The workspace: scratch, dir:PATH, or worktree:PATH of a git repository.",
)


@click.command(cls=AnswerCommand)
@click.argument("title")
@board_option
@click.option("--body", default="", help="What to do.")
@click.option("--assignee", default="", metavar="PROFILE", help="The profile whose workers run it.")
@click.option("--parent", "parents", multiple=True, metavar="ID", help="Wait for this task. Can be repeated.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher comes first.")
@click.option("--max-attempts", type=int, default=3, show_default=True, help="Limit how often it is run.")
@click.option(
    "--max-runtime",
    "runtime_s",
    type=duration,
    metavar="DURATION",
    help="Limit the time of one run: 90s, 30m, 7d.",
)
@_tokens_option
@_cost_option
@_workspace_option
@_environment_option
@_pool_option
@click.option("--reviewer", default="", metavar="NAME", help="The person who reviews it.")
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="COMMAND",
    help="A command that must succeed in the workspace before the task is done. Can be repeated.",
)
@click.option("--triage", is_flag=True, help="Wait until a person has said what to do.")
@click.option("--key", metavar="KEY", help="A key for retries: the same key creates one task.")
@_in_option
@with_store()
def create(
    store: "Store",
    /,
    board: str,
    runtime_s: float | None,
    max_tokens: BudgetBound | None,
    max_cost: BudgetBound | None,
    place: WorkspacePlace | None,
    pool: str | None,
    environment: str | None,
    key: str | None,
    in_s: float | None,
    **wished: Any,
) -> Answer:
    """Create a task.

    \b
    Examples:
      holdfast task create "Fix the test" --board crew --assignee codex --body "…"
      holdfast task create "Build it" --board crew --assignee script --body "make"
    """
    from holdfast.board.rules.rows import NewTask, WorkspaceKind

    where = place or WorkspacePlace("scratch", "")
    new = NewTask(
        wake_ms=_wake_time(store, in_s),
        workspace_kind=WorkspaceKind(where.kind),
        workspace=where.path,
        max_runtime_s=None if runtime_s is None else round(runtime_s),
        pool=pool or "",
        environment=environment or "",
        **(wished | _bounds(max_tokens, max_cost)),
    )
    made = store.create(board, new, who=user_name(), key=key)
    warning = _nobody_takes(store, made)
    return answer(made) | ({"warnings": warning[:1], "warned": warning} if warning else {})


def _nobody_takes(store: "Store", task: "Task") -> list[str]:
    """Warn that no dispatcher would start the task, with a remedy; empty if one would, or it is not due."""
    reason = store.why(task.id).reason
    if not task.assignee or not reason.startswith("no worker accepts it"):
        return []
    from holdfast.dispatch.installed import find_installed

    try:
        known = sorted(find_installed(current_home(), os.environ))
    except HoldfastError:  # an invalid profiles file: the dispatcher reports it
        known = []
    if task.assignee in known:
        words = f"no dispatcher works for the board {task.board}"
        return [f"warning: {words}: the task waits", f"  try: holdfast up --board {task.board}"]
    return [
        f"warning: `{task.assignee}` is no worker profile here: the task waits",
        f"  try: holdfast task assign {task.id} NAME, one of: {', '.join(known)}",
    ]


@click.command(cls=AnswerCommand)
@click.argument("parent")
@click.argument("child")
@click.option("--remove", is_flag=True, help="Remove the link.")
@with_store()
def link(store: "Store", parent: str, child: str, remove: bool) -> Answer:
    """Make CHILD wait for PARENT.

    \b
    Example:
      holdfast task link 1f2e 2a3b
    """
    return answer((store.unlink if remove else store.link)(parent, child, who=user_name()))


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.argument("text")
@with_store()
def comment(store: "Store", id: str, text: str) -> Answer:
    """Add a comment to a task.

    \b
    Example:
      holdfast task comment 1f2e "see also issue 12"
    """
    made = store.comment(id, text, who=user_name())
    return {"comment": made, "text": [f"comment {made.number} on {id}"]}


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.argument("text")
@with_store()
def tell(store: "Store", id: str, text: str) -> Answer:
    """Send a message to the worker that runs a task.

    `task show` says whether it was read.

    \b
    Example:
      holdfast task tell 1f2e "use the new parser"
    """
    made = store.tell(id, text, who=user_name())
    return {"message": made, "text": [f"message {made.number} to {made.run_id}"]}


@click.command("answer", cls=AnswerCommand)
@click.argument("id")
@click.argument("answer", type=click.Choice(("yes", "no", "pattern")))
@click.argument("host", metavar="HOST:PORT")
@with_store()
def answer_(store: "Store", id: str, answer: str, host: str) -> Answer:
    """Allow or refuse a host that the worker of a task waits for.

    `task inbox` lists the questions. The answer holds for that host and port, while this run lasts; `pattern`
    also allows the names beside it, as shown by `task show`.

    \b
    Example:
      holdfast task answer 1f2e yes registry.example.net:443
    """
    from holdfast.board.rules import verbs

    verb = verbs.find_verb("answer", verbs.BoardCaller.PERSON)
    given = store.carry_out(verb, id, verbs.parse(verb, {"answer": answer, "host": host}), who=user_name())
    allowed = {"yes": given.host, "pattern": given.pattern}.get(answer)
    what = f"allowed: {allowed}" if allowed else f"refused: {given.host}"
    return {"question": given, "text": [f"{what}, for {given.run_id} of {given.task_id}"]}


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.argument("move", type=click.Choice(MOVES), metavar="MOVE")
@_reason_option
@_in_option
@with_store()
def move(store: "Store", id: str, move: str, reason: str, in_s: float | None) -> Answer:
    """Move a task to another status.

    MOVE is archive, block, cancel, complete, request_changes, rethink (back to triage), retry, schedule
    (with --in), specify (out of triage) or unblock.

    \b
    Example:
      holdfast task move 1f2e schedule --in 2h
    """
    if in_s is not None and move != "schedule":
        raise UsageError(f"{move} has no time", remedy="--in goes with schedule")
    words: dict[str, object] = {"reason": reason}
    words |= {"question": reason} if move == "block" else {}
    return _move(store, id, move, **words, **({} if in_s is None else {"in_s": in_s}))


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.argument("question")
@click.option(
    "--option", "options", multiple=True, metavar="TEXT", help="A possible answer. Can be repeated."
)
@click.option("--for", "waiting_for", default="", metavar="NAME", help="The person to ask.")
@with_store()
def block(store: "Store", id: str, question: str, options: tuple[str, ...], waiting_for: str) -> Answer:
    """Stop a task until a person answers.

    A run that holds the task is ended.

    \b
    Example:
      holdfast task block 1f2e "Which colour?"
    """
    return _move(store, id, "block", question=question, options=options, waiting_for=waiting_for)


@click.command(cls=AnswerCommand)
@click.argument("id")
@_reason_option
@with_store()
def unblock(store: "Store", id: str, reason: str) -> Answer:
    """Continue a task that waits for a person or a time.

    \b
    Example:
      holdfast task unblock 1f2e --reason red
    """
    return _move(store, id, "unblock", reason=reason)


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.option("--result", help="The result, kept with the task.")
@with_store()
def complete(store: "Store", id: str, result: str | None) -> Answer:
    """Mark a task as done.

    This also accepts a review, and work whose report is missing.

    \b
    Example:
      holdfast task complete 1f2e
    """
    return _move(store, id, "complete", result=result)


@click.command(cls=AnswerCommand)
@click.argument("id")
@_reason_option
@with_store()
def cancel(store: "Store", id: str, reason: str) -> Answer:
    """Cancel a task for good.

    \b
    Example:
      holdfast task cancel 1f2e
    """
    return _move(store, id, "cancel", reason=reason)


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.option("--title", help="The title, in one line.")
@click.option("--body", help="What to do.")
@click.option("--priority", type=int, help="Higher comes first.")
@click.option("--max-attempts", type=int, help="Limit how often it is run.")
@click.option(
    "--max-runtime", "runtime", metavar="DURATION", help="Limit the time of one run: 90s, 30m, 7d, or `none`."
)
@_tokens_option
@_cost_option
@click.option("--reviewer", metavar="NAME", help="The person who reviews it.")
@click.option(
    "--check", "checks", multiple=True, metavar="COMMAND", help="Replace its checks; '' removes them."
)
@_workspace_option
@_environment_option
@_pool_option
@with_store()
def edit(
    store: "Store",
    /,
    id: str,
    runtime: str | None,
    max_tokens: BudgetBound | None,
    max_cost: BudgetBound | None,
    checks: tuple[str, ...],
    place: WorkspacePlace | None,
    **wished: object,
) -> Answer:
    """Change the text or the settings of a task.

    Its status stays.

    \b
    Example:
      holdfast task edit 1f2e --title "Fix both flaky tests"
    """
    from holdfast.board.rules.rows import Edit, WorkspaceKind

    given = {name: value for name, value in wished.items() if value is not None}
    given |= _bounds(max_tokens, max_cost)
    if checks:
        given["checks"] = tuple(check for check in checks if check)
    if runtime is not None:
        given["max_runtime_s"] = _parse_runtime(runtime)
    if place is not None:
        given |= {"workspace_kind": WorkspaceKind(place.kind), "workspace": place.path}
    return answer(store.edit(id, Edit(**given), who=user_name()))  # type: ignore[arg-type]  # named by the options


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.argument("profile")
@with_store()
def assign(store: "Store", id: str, profile: str) -> Answer:
    """Assign a task that is not running to a profile.

    \b
    Example:
      holdfast task assign 1f2e claude
    """
    return answer(store.assign(id, profile, who=user_name()))


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", help="The name on the board [default: the file's].")
@with_store()
def attach(store: "Store", id: str, file: Path, name: str | None) -> Answer:
    """Attach FILE to a task.

    Its worker can read it, and `task file` prints it.

    \b
    Example:
      holdfast task attach 1f2e design.png
    """
    from holdfast.board.rules.rows import MAX_FILE

    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except OSError as exc:
        raise OperationFailed(f"cannot read {file}: {exc.strerror}") from None
    made = store.attach(id, name or file.name, data, who=user_name())
    return {"file": made, "text": [f"{made.name}: {made.size} bytes on {id}"]}


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.option("--report-only", is_flag=True, help="Ask only for the missing report; keep the work.")
@_reason_option
@with_store()
def retry(store: "Store", id: str, report_only: bool, reason: str) -> Answer:
    """Run a failed task again.

    Also one whose report is missing. Its attempts are counted anew.

    \b
    Example:
      holdfast task retry 1f2e
    """
    return _move(store, id, "retry", reason=reason, report_only=report_only)


def _bounds(max_tokens: BudgetBound | None, max_cost: BudgetBound | None) -> dict[str, int | None]:
    """The given bounds, as members of a task."""
    given = {"max_tokens": max_tokens, "max_cost": max_cost}
    return {name: bound.most for name, bound in given.items() if bound is not None}


def _move(store: "Store", id: str, move: str, **words: object) -> Answer:
    from holdfast.board.rules import verbs

    verb = verbs.find_verb(move, verbs.BoardCaller.PERSON)
    return answer(store.carry_out(verb, id, verbs.parse(verb, words), who=user_name()))


def _wake_time(store: "Store", in_s: float | None) -> int | None:
    """The wake time by the store's clock, which may differ from the one here."""
    return None if in_s is None else store.now_ms() + round(in_s * 1000)


def _parse_runtime(text: str) -> int | None:
    try:
        return None if text == "none" else round(duration(text))
    except click.BadParameter as exc:
        raise UsageError(exc.format_message()) from None


COMMANDS: Final = (
    *(create, edit, assign, attach, link, comment, tell, answer_, move, block, unblock, complete, cancel),
    retry,
)
