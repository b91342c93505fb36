"""`holdfast open`: parse, call, print."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from holdfast.commands.clickoptions import home_option
from holdfast.commands.output import Answer, AnswerCommand, json_option, need_extra
from holdfast.errors import NotFound

OPENERS: Final = ("xdg-open", "sensible-browser")  # of desktops
_DARWIN: Final = "open"  # of macOS, which needs no variable; on Debian this name is xdg-open


@click.command(cls=AnswerCommand)
@click.option("--print", "printed", is_flag=True, help="Print the link instead of starting a browser.")
@home_option
@json_option
def open(printed: bool, home: Path) -> Answer:
    """Open the dashboard in a browser.

    The link works once, for a minute, for processes of this user. It sets a cookie that admits the browser
    from then on, also after a restart of the dashboard, so a bookmark works. The cookie is valid for this
    home only, for 90 days. To revoke all cookies, remove web.key in the home and start the dashboard again.

    Exit codes: 0 opened or printed; 1 refused; 2 usage; 3 no dashboard runs.

    \b
    Examples:
      holdfast open
      holdfast open --print
    """
    from holdfast.agents.supervisor import daemons

    found = [
        one.card.address for one in daemons.find_by_role(home, daemons.DASHBOARD) if one.card is not None
    ]
    with need_extra("web", "the dashboard", "starlette", "uvicorn"):
        from holdfast.web.cookies import link
    if not found:
        begin = "holdfast down, then holdfast up" if daemons.find_by_role(home, daemons.UP) else "holdfast up"
        raise NotFound(f"no dashboard runs for {home}", remedy=begin)
    address = link(home, found[0])
    opener = None if printed else _opener()
    if opener is None:
        text = [] if printed else ["no browser is found here; open this within a minute:"]
        return {"address": found[0], "link": address, "opened": False, "text": [*text, address]}
    subprocess.Popen(  # noqa: S603 - the desktop's own program, an address of ours
        [*opener, address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # not waited for: some browsers stay in the foreground
    )
    return {"address": found[0], "link": None, "opened": True, "text": [f"opened {found[0]}"]}


def _opener() -> list[str] | None:
    """A program that opens addresses; None without one, or without a display."""
    import shlex

    if os.environ.get("BROWSER"):
        words = shlex.split(os.environ["BROWSER"].split(":")[0])
        if words and shutil.which(words[0]):
            return words
    if sys.platform == "darwin":
        return [_DARWIN] if shutil.which(_DARWIN) else None
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        return None
    return next(([found] for name in OPENERS if (found := shutil.which(name)) is not None), None)
