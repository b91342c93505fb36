"""`holdfast dispatch status`: parse, call, print."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.commands.boarding import Verb, json_option, say
from holdfast.commands.homeoption import home_option

if TYPE_CHECKING:
    from holdfast.dispatch.rules.dispatcherstatus import DispatcherReport

NONE: Final = 3  # the exit code without a dispatcher, as for everything that is not found


@click.command(cls=Verb)
@home_option
@json_option
def status(home: Path, as_json: bool) -> None:
    """Show whether a dispatcher runs, and what it does.

    Whether there is one says its lock; the rest it wrote down itself, some seconds ago or before it died.

    Exit codes: 0 there is one; 2 usage; 3 there is none.

    \b
    Example:
      holdfast dispatch status
    """
    import sys
    import time

    from holdfast.dispatch import homefiles

    alive, told = homefiles.read_status(home.absolute())
    text = [f"{'a dispatcher' if alive else 'no dispatcher'} for {home}"]
    if told is not None:
        text += _lines(told, alive, time.time())
    elif alive:
        text.append("  it has not reported yet")
    code = say(
        {"home": str(home), "alive": alive, "dispatcher": told, "text": text, "exit": 0 if alive else NONE},
        as_json=as_json,
    )
    sys.exit(code)


def _lines(told: "DispatcherReport", alive: bool, now: float) -> list[str]:
    rounded = "none yet" if told.round_at is None else f"{now - told.round_at:.1f} s ago"
    text = [
        f"  {'is' if alive else 'was'} {told.host}, pid {told.pid}, since {_clock(told.since)}",
        f"  boards {', '.join(told.boards)}; workers for {', '.join(told.profiles) or 'nobody'}",
        f"  {len(told.runs)} runs; last round {rounded}",
        f"  {told.claims} claims, {told.leases_renewed} leases renewed, {told.reloads} reloads",
    ]
    if told.start_p50_s is not None and told.start_p95_s is not None:
        text.append(f"  a start takes {told.start_p50_s:.2f} s (p50), {told.start_p95_s:.2f} s (p95)")
    if told.error_at is not None:
        text.append(f"  last error {now - told.error_at:.0f} s ago: {told.error}")
    if told.reload_error:
        text.append(f"  worker-profiles.toml is not in force: {told.reload_error}")
    return text


def _clock(at: float) -> str:
    from holdfast.board.rules.assign import clock

    return clock(round(at * 1000))
