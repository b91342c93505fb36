"""`holdfast status`: parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.commands.clickoptions import home_option
from holdfast.commands.output import Answer, AnswerCommand, json_option
from holdfast.local.shown import count

if TYPE_CHECKING:
    from holdfast.agents.supervisor.daemons import Daemon
    from holdfast.dispatch.rules.dispatcherstatus import DispatcherReport

NOTHING_RUNS: Final = 3  # exit code when nothing runs; the usual code for "not found"
MIB: Final = 1 << 20


@click.command(cls=AnswerCommand)
@home_option
@json_option
def status(home: Path) -> Answer:
    """Show what runs for a home.

    It lists the workers and the processes: where each runs, since when and which version.

    The data comes from locks and sockets; nothing is started. A process that runs other code than this
    command is marked.

    Exit codes: 0 something runs; 2 usage; 3 nothing runs.

    \b
    Examples:
      holdfast status
      holdfast status --json
    """
    import time

    from holdfast.agents.supervisor import daemons
    from holdfast.dispatch import homefiles

    found, workers = daemons.find(home), daemons.list_living_workers(home)
    alive, told = homefiles.read_status(home)
    told = told if alive else None
    rows = [_row(home, one) for one in found]
    text = [f"{'these run' if found else 'nothing runs'} for {home}"]
    for process in dict.fromkeys(one.process for one in found):
        text += _lines([(one, row) for one, row in zip(found, rows, strict=True) if one.process == process])
    text += [f"{count(len(workers), 'worker')}: {', '.join(workers)}"] if workers else []
    text += _last_error(told, time.time())
    if any(one.role == daemons.DASHBOARD for one in found):
        text.append("  try: holdfast open")
    text.append("  to end it: holdfast down" if found else "  try: holdfast up")
    error = None if told is None or told.error_at is None else {"at": told.error_at, "message": told.error}
    answer = {"home": str(home), "running": bool(found), "daemons": rows, "workers": workers}
    return {**answer, "lastError": error, "text": text, "exit": 0 if found else NOTHING_RUNS}


def _row(home: Path, one: "Daemon") -> dict[str, object]:
    from holdfast.agents.supervisor import background, daemons

    memory, card = daemons.read_memory(one.process), one.card
    return {
        "role": one.role,
        "pid": one.process.pid,
        "since": None if card is None else card.since,
        "address": None if card is None else card.address or None,
        "version": None if card is None else card.origin.version,
        "place": None if card is None else card.origin.place,
        "differs": background.difference(one),
        "rss": None if memory is None else memory.rss,
        "pss": None if memory is None else memory.pss,
        "below": len(daemons.find_descendants(one.process)),
        "lastError": daemons.read_last_error(home, one.role),
    }


def _lines(roles: "list[tuple[Daemon, dict[str, object]]]") -> list[str]:
    """The lines about one process, in all of its roles."""
    from holdfast.board.rules.assign import clock

    one, row = roles[0]
    lines = [f"{' + '.join(role.role for role, _ in roles)}: pid {one.process.pid}"]
    lines += [f"  {role.role} {its['address']}" for role, its in roles if its["address"]]
    if one.card is not None:
        since, origin = clock(round(one.card.since * 1000)), one.card.origin
        lines.append(f"  since {since}, version {origin.version} of {origin.place}")
    if isinstance(row["rss"], int) and isinstance(row["below"], int):
        shared = f" ({row['pss'] / MIB:.0f} MiB is its share)" if isinstance(row["pss"], int) else ""
        below = count(row["below"], "process", "processes")
        lines.append(f"  {row['rss'] / MIB:.0f} MiB of memory{shared}; {below} below it")
    if row["differs"]:
        lines.append(f"  it runs other code than this command: {row['differs']}")
    lines += [f"  last error of {its['role']}: {its['lastError']}" for _, its in roles if its["lastError"]]
    return lines


def _last_error(told: "DispatcherReport | None", now: float) -> list[str]:
    if told is None or told.error_at is None:
        return []
    return [f"last error {now - told.error_at:.0f} s ago: {told.error}"]
