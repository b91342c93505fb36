"""`holdfast worker watch`: a live table of all workers."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.commands.output import printable
from holdfast.commands.worker.connected import COLOURS

if TYPE_CHECKING:
    from holdfast.agents.sdk import Workers
    from holdfast.agents.supervisor.messages import ReportedUsage, WorkerReport

REFRESH_S: Final = 1.0  # the shown ages change every second
_URGENT: Final = ("waiting", "blocked")
_ORDER: Final = ("waiting", "blocked", "stalled", "failed", "lost", "starting", "running", "completed")


async def watch(workers: "Workers", *, until_ended: bool) -> None:
    """Show the table until the user interrupts it, or all workers have ended."""
    seen: dict[str, tuple[WorkerReport, float]] = {}

    def take(report: "WorkerReport") -> None:
        seen[report.id] = (report, time.monotonic())

    for report in await workers.subscribe():
        take(report)
    console = Console()
    with Live(table(seen, time.monotonic()), console=console, auto_refresh=False, transient=False) as live:

        async def listen() -> None:
            async for report in workers.changes():
                take(report)
                live.update(table(seen, time.monotonic()), refresh=True)

        listening = asyncio.ensure_future(listen())
        try:
            while not listening.done():
                live.update(table(seen, time.monotonic()), refresh=True)
                if until_ended and all(report.state.ended for report, _ in seen.values()):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(listening), REFRESH_S)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def table(seen: "dict[str, tuple[WorkerReport, float]]", now: float) -> Table:
    """The table of workers, those that need a person first."""
    made = Table(expand=True, box=None, pad_edge=False)
    for name, wide in (("worker", False), ("state", False), ("for", False), ("about", True), ("cost", False)):
        made.add_column(name, no_wrap=not wide, ratio=1 if wide else None)
    for report, at in sorted(seen.values(), key=lambda item: (_ORDER.index(item[0].state), item[0].id)):
        what = report.failure or report.detail
        state = f"{report.state} ({what})" if what else str(report.state)
        evidence = next((item.seen for item in report.evidence if item.seen), "")
        made.add_row(
            report.id,
            Text(state, style=f"{'bold ' if report.state in _URGENT else ''}{COLOURS[report.state]}"),
            age(report.for_seconds + now - at),
            Text(printable(report.about or evidence)),
            cost(report.usage),
        )
    return made


def age(seconds: float) -> str:
    """Format a duration as a number and a unit."""
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds / 86400)} d"


def cost(usage: "ReportedUsage | None") -> str:
    """The usage that the CLI reports, as far as it does."""
    if usage is None:
        return ""
    tokens = f"{(usage.input_tokens + usage.output_tokens) / 1000:.1f}k"
    return tokens if usage.cost_usd is None else f"{tokens} ${usage.cost_usd:.2f}"
