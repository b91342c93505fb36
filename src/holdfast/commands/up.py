"""`holdfast up`: everything on embedded defaults. Parse, call, print."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from holdfast.commands.boarding import Verb, json_option, refuse, say, store_option
from holdfast.commands.hostlimits import chosen, host_options
from holdfast.errors import Conflict, HoldfastError, StartupError

if TYPE_CHECKING:
    from holdfast.board.rows import Run
    from holdfast.dispatch.pressure import Limits

LISTEN: Final = "ws://127.0.0.1:0"


@click.command(cls=Verb)
@click.option("--board", default="main", show_default=True, metavar="NAME", help="Made if there is none.")
@click.option(
    "--listen", metavar="URL", default=LISTEN, show_default=True, help="Where the exec server listens."
)
@host_options
@click.option(
    "--web/--no-web", "with_web", default=True, help="A board in the browser as well [default: yes]."
)
@click.option(
    "--web-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Its port [default: a free one].",
)
@click.option("--demo", is_flag=True, help="Also three tasks on a board `demo`, and what becomes of them.")
@store_option
@json_option
def up(
    board: str,
    listen: str,
    most: int | None,
    min_free: int | None,
    max_load: float | None,
    with_web: bool,
    web_port: int,
    demo: bool,
    address: str,
    as_json: bool,
) -> None:
    """Start all of it here: an exec server, a board, a dispatcher of sandboxed workers, and a dashboard.

    Ended by a signal it leaves the workers running; the next one takes them over. `holdfast worker list`
    shows them, `holdfast worker stop` ends one. Exit codes are those of `holdfast dispatch`.
    """
    from holdfast import log

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))
    limits = chosen(min_free, max_load)
    try:
        port = web_port if with_web else None
        asyncio.run(_up(board, listen, most, limits, port, demo=demo, address=address, as_json=as_json))
    except HoldfastError as exc:
        refuse(exc, as_json=as_json)


async def _up(
    board: str,
    listen: str,
    most: int | None,
    limits: "Limits",
    web_port: int | None,
    *,
    demo: bool,
    address: str,
    as_json: bool,
) -> None:
    from holdfast.agents.book import Book
    from holdfast.board.store import open_store
    from holdfast.commands.web import dashboard
    from holdfast.dispatch import demo as example
    from holdfast.dispatch import hostload, opening, pressure
    from holdfast.dispatch.dispatcher import Plan
    from holdfast.dispatch.installed import installed
    from holdfast.home import default_home
    from holdfast.server.address import parse
    from holdfast.server.listen import Options, serve

    home = default_home()
    Book(home).prepare()
    ids: list[str] = []
    with open_store(address) as store:
        if board not in {one.slug for one in store.boards()}:
            with contextlib.suppress(Conflict):  # somebody else made it meanwhile
                store.create_board(board)
        if demo:
            ids = example.made(store, opening.COMMAND)
    boards = (board, *((example.BOARD,) if demo and board != example.BOARD else ()))

    def print_(kind: str, text: list[str], **members: object) -> None:
        say({"kind": kind, **members, "text": text}, as_json=as_json)
        sys.stdout.flush()

    def told(kind: str, run: "Run") -> None:
        line = {"run": run.id, "task": run.task_id, "board": run.board, "profile": run.profile}
        print_(kind, [f"{kind} {run.task_id} {run.id} {run.profile}"], **line)

    def announce(url: str) -> None:
        print_("serving", [f"exec server  {url}", f"  try: CODEX_EXEC_SERVER_URL={url} codex"], address=url)

    def opened(url: str) -> None:
        print_("web", [f"dashboard    {url}"], address=url)

    launchers = sorted(installed(home, os.environ))
    print_(
        "board",
        [
            f"board        {board} in {address}",
            f"  try: holdfast task create 'Say hello' --board {board} --assignee script --body 'echo hello'",
            f"workers for  {', '.join(launchers)}",
        ],
        board=board,
        store=address,
        launchers=launchers,
    )
    most = most or pressure.most_here(hostload.look())
    plan = Plan(boards, most, held=hostload.holding(limits))
    jobs = [
        asyncio.ensure_future(serve(Options(parse(listen)), announce=announce)),  # ends with a signal
        asyncio.ensure_future(opening.serve(home, address, plan, told=told)),
    ]
    if web_port is not None:
        try:
            jobs.append(asyncio.ensure_future(dashboard(address, home, opened, port=web_port)))
        except StartupError as exc:
            print_("web", [f"dashboard    none: {exc}; {exc.remedy}"], address=None)
    shown = asyncio.ensure_future(_show(print_, address, ids))
    done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    for job in (*jobs, shown):
        job.cancel()
    await asyncio.gather(*jobs, shown, return_exceptions=True)
    for job in done:
        job.result()


async def _show(print_: Callable[..., None], address: str, ids: list[str]) -> None:
    """What became of the example, if there is one."""
    if not ids:
        return
    from holdfast.dispatch import demo as example

    print_("demo", ["", *await example.outcome(address, ids), "", "Ctrl-C ends this."], tasks=ids)
