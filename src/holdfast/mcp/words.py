"""The description of a worker for a supervising agent: state, question, refusals, and possible actions."""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.agents.evidence.evidence import Denied, WorkerState
from holdfast.agents.supervisor.messages import WorkerDiff, WorkerReport, WorkerResult
from holdfast.errors import HoldfastError

MAX_REFUSALS: Final = 5  # of one worker in words; the structured answer has more
MAX_PATHS: Final = 100  # likewise
_GRANTS: Final = {
    "--allow-write": "allow_write",
    "--allow-read": "allow_read",
    "--allow-host": "allow_host",
    "--network": "network",
}


def line_of(report: WorkerReport) -> str:
    """A worker in one line."""
    what = report.failure or report.detail
    state = f"{report.state}({what})" if what else str(report.state)
    about = f": {report.about}" if report.about else ""
    flags = f" [{', '.join(report.flags)}]" if report.flags else ""
    return f"{report.id} ({report.agent}) is {state}{about}{flags}"


def describe(report: WorkerReport) -> str:
    """A worker, and what its supervisor can do now."""
    lines = [line_of(report)]
    if report.asks is not None:
        options = ", ".join(f"{one.id} ({one.name})" for one in report.asks.options)
        lines.append(f"It asks: {report.asks.question}" + (f" Options: {options}." if options else ""))
    lines += _advice(report)
    lines += refusals(report)
    return "\n".join(lines)


def describe_result(result: WorkerResult) -> str:
    """How it ended, and its answer."""
    lines = [line_of(result)]
    if result.exit_code:
        lines.append(f"Its program ended with {result.exit_code}.")
    lines += refusals(result)
    if not result.state.ended:
        lines.append("It has not ended; this is what it said so far.")
    lines += ["", result.answer or result.screen or "It answered nothing."]
    return "\n".join(lines)


def describe_diff(found: WorkerDiff, shown: str) -> str:
    """What changed: the paths, then the shown part of the patch."""
    where = f"in {found.cwd} since {found.since} was started"
    if not (found.count or found.paths):
        return f"Nothing changed {where}."
    rest = len(found.diff.encode()) - len(shown.encode())
    cut = [f"[{rest} bytes more: holdfast worker diff {found.id}]"] if rest else []
    return "\n".join([f"{found.count} changed {where}:", *found.paths[:MAX_PATHS], "", shown, *cut])


def refusals(report: WorkerReport) -> list[str]:
    """What the sandbox refused, each with the one grant that suffices."""
    counted = [one for one in report.denials if one.counts]
    told = [_refusal(one) for one in counted[:MAX_REFUSALS]]
    more = len(counted) - len(told)
    return [*told, *([f"and {more} more refusals"] if more > 0 else [])]


def not_reached(until: Sequence[str], after: str) -> str:
    return f"After {after} none of them is {' or '.join(until)}: call worker_wait again."


def words_of_error(exc: HoldfastError) -> str:
    return f"{exc}. Try: {exc.remedy}" if exc.remedy else str(exc)


def _advice(report: WorkerReport) -> Iterator[str]:
    if report.state is WorkerState.WAITING:
        answers = "worker_approve answers it" if report.asks or report.detail == "decision" else ""
        typed = "worker_send types into its terminal" if report.tty else ""
        if ways := "; ".join(filter(None, (answers, typed))):
            yield f"To go on: {ways}."
    elif report.state in (WorkerState.BLOCKED, WorkerState.STALLED):
        yield "worker_explain tells why."
    elif report.state.ended:
        yield "worker_result tells what it answered."


def _refusal(denied: Denied) -> str:
    because = f" by: {denied.rule}" if denied.rule else ""
    option, _, value = denied.grant.partition(" ")
    way = f" Enough: worker_grant with {_GRANTS[option]}: {value}." if option in _GRANTS else ""
    return f"{denied.access} of {denied.path} was refused ({denied.errno}){because}.{way}"
