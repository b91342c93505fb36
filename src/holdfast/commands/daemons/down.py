"""`holdfast down`: parse, call, print."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.clickoptions import home_option
from holdfast.commands.output import Answer, AnswerCommand, json_option
from holdfast.errors import Conflict, OperationFailed
from holdfast.local.shown import count

if TYPE_CHECKING:
    from holdfast.agents.supervisor.daemons import Daemon


@click.command(cls=AnswerCommand)
@click.option("--workers", "with_workers", is_flag=True, help="Also end workers that run.")
@home_option
@json_option
def down(with_workers: bool, home: Path) -> Answer:
    """Stop everything that runs for a home.

    It ends `up` or a dispatcher, dashboards, the supervisor and the exec server.

    While workers run it refuses and names them. With --workers it ends them too. The tasks of a dispatcher
    return to their board, and the next dispatcher takes them on again. If nothing runs, it reports that.

    Exit codes: 0 nothing runs any more; 1 a process could not be ended; 2 usage; 4 workers run.

    \b
    Examples:
      holdfast down
      holdfast down --workers
    """
    return asyncio.run(_down(home, with_workers=with_workers))


async def _down(home: Path, *, with_workers: bool) -> Answer:
    from holdfast.agents.supervisor import background, daemons

    found, workers = daemons.find(home), daemons.list_living_workers(home)
    if not found:
        return {"home": str(home), "ended": [], "workers": [], "text": [f"nothing runs for {home}"]}
    if workers and not with_workers:
        raise Conflict(
            f"{count(len(workers), 'worker runs', 'workers run')}: {', '.join(workers)}",
            remedy="holdfast down --workers",
        )
    first = [one for one in found if one.role not in (daemons.SUPERVISOR, daemons.OWNER)]
    if with_workers:  # this signal makes a dispatcher end its workers and give their tasks back
        await background.end(home, _alone(first), signal.SIGUSR1, within_s=background.LEAVE_S)
    await background.end(home, first, within_s=background.LEAVE_S)
    if left := daemons.list_living_workers(home):
        if not with_workers:
            raise Conflict(
                f"{count(len(left), 'worker was', 'workers were')} started meanwhile: {', '.join(left)}",
                remedy="the same command again",
            )
        await background.stop_workers(home, left, grace_s=2.0)
    await background.end_background(home)
    if rest := daemons.find(home):
        names = ", ".join(f"{one.role} (pid {one.process.pid})" for one in rest)
        raise OperationFailed(f"still running, or started meanwhile: {names}", remedy="holdfast down")
    text = [f"ended {one.role}, pid {one.process.pid}" for one in found]
    text += [f"ended {count(len(workers), 'worker')}: {', '.join(workers)}"] if workers else []
    rows = [{"role": one.role, "pid": one.process.pid} for one in found]
    return {"home": str(home), "ended": rows, "workers": workers, "text": text}


def _alone(first: "list[Daemon]") -> "list[Daemon]":
    """Dispatchers that are not part of an `up`, and new enough to know that signal."""
    from holdfast.agents.supervisor import daemons

    ups = {one.process for one in first if one.role == daemons.UP}
    dispatchers = [one for one in first if one.role == daemons.DISPATCHER and one.card is not None]
    return [one for one in dispatchers if one.process not in ups]
