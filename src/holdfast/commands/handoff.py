"""`holdfast handoff`: a worker reports its progress. Parse, call, print."""

import functools
import os
from collections.abc import Callable
from typing import Final, Literal, ParamSpec

import click

from holdfast import decoding
from holdfast.commands.output import Answer, AnswerCommand, is_json, json_option, refuse, say
from holdfast.errors import Unreachable, UsageError

P = ParamSpec("P")

CHANNELS: Final = ("auto", "socket", "outbox")


@click.group()
def handoff() -> None:
    """Report on the task that this workspace belongs to.

    Needs no access to the board: the report goes through a socket, or, if the sandbox refuses that, through
    files in the workspace.

    Exit codes: 0 done, or accepted and on disk; 1 refused; 2 usage; 3 no run here; 4 conflict: the run is
    over, or no longer has the task; 5 the report was not received.

    \b
    Examples:
      holdfast handoff complete "fixed the parser"
      holdfast handoff block "Which colour?"
    """


def _verb(
    verb: str, *, needs_answer: bool = False
) -> Callable[[Callable[P, dict[str, object]]], Callable[..., Answer]]:
    """Make a command that sends this verb, with the arguments that the function returns."""

    def decorate(arguments: Callable[P, dict[str, object]]) -> Callable[..., Answer]:
        @click.option(
            "--channel",
            type=click.Choice(CHANNELS),
            default="auto",
            show_default=True,
            help="How to send it; auto takes the socket, else the outbox.",
        )
        @click.option("--id", "id", metavar="ID", help="An id for retries: the same id is carried out once.")
        @json_option
        @functools.wraps(arguments)
        def send(
            channel: Literal["auto", "socket", "outbox"],
            id: str | None,
            *args: P.args,
            **kwargs: P.kwargs,
        ) -> Answer:
            from holdfast.handoff.envelope import error_of
            from holdfast.handoff.sender import ACCEPTED, Sender

            answer = Sender.find().send(verb, arguments(*args, **kwargs), id=id, channel=channel)
            result = answer.result or {}
            if needs_answer and ACCEPTED in result:
                raise Unreachable("there is no answer yet", remedy="the same command again")
            heard = [f"message from {each.author}: {each.body}" for each in answer.messages]
            if answer.error is not None:
                if not is_json():
                    say({"text": heard})
                refuse(error_of(answer.error), messages=answer.messages)
            more = {"messages": answer.messages} if heard else {}
            return {"id": answer.id, **result, **more, "text": _describe(verb, result), "after": heard}

        return send

    return decorate


metadata_option = click.option("--metadata", metavar="JSON", help="A JSON object to keep with the result.")


@handoff.command(cls=AnswerCommand)
@click.argument("summary")
@metadata_option
@_verb("complete")
def complete(summary: str, metadata: str | None) -> dict[str, object]:
    """Report that the task is done, with a summary.

    \b
    Example:
      holdfast handoff complete "fixed the parser"
    """
    return {"summary": summary, "metadata": _parse_object(metadata)}


@handoff.command(cls=AnswerCommand)
@click.argument("summary")
@metadata_option
@_verb("request_review")
def review(summary: str, metadata: str | None) -> dict[str, object]:
    """Report that the work is ready for review.

    \b
    Example:
      holdfast handoff review "the parser is rewritten"
    """
    return {"summary": summary, "metadata": _parse_object(metadata)}


@handoff.command(cls=AnswerCommand)
@click.argument("question")
@click.option(
    "--option", "options", multiple=True, metavar="TEXT", help="A possible answer. Can be repeated."
)
@click.option("--for", "waiting_for", default="", metavar="NAME", help="The person to ask.")
@_verb("block")
def block(question: str, options: tuple[str, ...], waiting_for: str) -> dict[str, object]:
    """Stop and ask a person.

    \b
    Example:
      holdfast handoff block "Which colour?"
    """
    return {"question": question, "options": list(options), "waiting_for": waiting_for}


@handoff.command(cls=AnswerCommand)
@click.argument("text")
@_verb("comment")
def comment(text: str) -> dict[str, object]:
    """Add a comment to the task.

    \b
    Example:
      holdfast handoff comment "half of the tests pass"
    """
    return {"body": text}


@handoff.command(cls=AnswerCommand)
@click.option("--note", default="", help="What the worker is doing.")
@_verb("heartbeat")
def heartbeat(note: str) -> dict[str, object]:
    """Report that the work goes on.

    \b
    Example:
      holdfast handoff heartbeat
    """
    return {"note": note}


@handoff.command(cls=AnswerCommand)
@click.argument("title")
@click.option("--body", default="", help="What to do.")
@click.option("--assignee", default="", metavar="PROFILE", help="The profile whose workers run it.")
@click.option("--parent", "parents", multiple=True, metavar="ID", help="Wait for this task. Can be repeated.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher comes first.")
@click.option("--max-attempts", type=int, default=3, show_default=True, help="Give up after this many runs.")
@click.option("--triage", is_flag=True, help="Wait until a person has said what to do.")
@_verb("create")
def create(**wishes: object) -> dict[str, object]:
    """Create a task that waits for this one.

    \b
    Example:
      holdfast handoff create "Write the release notes" --assignee codex
    """
    return wishes


@handoff.command(cls=AnswerCommand)
@click.argument("parent")
@click.argument("child")
@_verb("link")
def link(parent: str, child: str) -> dict[str, object]:
    """Make CHILD wait for PARENT; this run must have created CHILD.

    \b
    Example:
      holdfast handoff link t_1f2e3d4c5b6a t_2a3b4c5d6e7f
    """
    return {"parent": parent, "child": child}


@handoff.command(cls=AnswerCommand)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--name", help="Use another name than the file's.")
@_verb("attach")
def attach(file: str, name: str | None) -> dict[str, object]:
    """Attach a file of up to 360 KiB to the task.

    \b
    Example:
      holdfast handoff attach report.html
    """
    from holdfast.board.rules.verbs import MAX_DATA

    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_DATA + 1)
    except OSError as exc:
        raise UsageError(f"cannot read {file}: {exc.strerror}") from None
    return {"name": name or os.path.basename(file), "data": data}


@handoff.command(cls=AnswerCommand)
@click.argument("task", required=False)
@_verb("show", needs_answer=True)
def show(task: str | None) -> dict[str, object]:
    """Show the task, the tasks before it, and its comments.

    TASK is one that it waited for, or that this run has created.

    \b
    Example:
      holdfast handoff show
    """
    return {"task": task}


def _parse_object(text: str | None) -> dict[str, object]:
    import msgspec

    try:
        return decoding.decode(text or "{}", dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UsageError("--metadata is not a JSON object", remedy="--metadata '{\"files\": 3}'") from None


def _describe(verb: str, result: dict[str, object]) -> list[str]:
    """Format an answer for people, one line per item; the answer is nested tables."""
    if "accepted" in result:
        return ["accepted: it is in the outbox and will be read"]
    match result:
        case {"detail": {"task": {"id": id, "title": title, "body": body, "status": status}, **rest}}:
            above = [f"  after {each['task_id']}: {each['result']}" for each in _rows(rest, "results")]
            said = [f"  {each['author']}: {each['body']}" for each in _rows(rest, "comments")]
            return [f"{id}  {status}  {title}", *str(body).splitlines(), *above, *said]
        case {"task": {"id": id, "status": status}}:
            return [f"{id} is {status}"]
        case {"comment": {"number": number}}:
            return [f"comment {number}"]
        case {"file": {"name": name, "size": size}}:
            return [f"attached {name}, {size} bytes"]
    return [f"{verb}: heard"]


def _rows(detail: dict[object, object], name: str) -> list[dict[str, object]]:
    found = detail[name]
    return found if isinstance(found, list) else []
