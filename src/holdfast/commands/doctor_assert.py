"""`holdfast doctor assert`: parse, call, print."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.oneline import OneLine, printable
from holdfast.commands.pasting import pasteable
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.doctor.assertion.assertion import AssertionReport

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.command("assert", cls=OneLine)
@click.option(
    "--agent",
    type=click.Choice(["codex", "holdfast"]),
    help="The agent to try [default: codex if found, else holdfast].",
)
@click.option("--codex", "binary", metavar="PATH", type=click.Path(path_type=Path), help="The codex program.")
@click.option("--home", type=_DIRECTORY, help="Its CODEX_HOME, which is only read.  [default: as Codex]")
@click.option("--cwd", type=_DIRECTORY, help="Where the agent works.  [default: here]")
@click.option(
    "--expect",
    type=click.Choice(["confined", "read-only", "workspace-write", "network", "full-access"]),
    default="confined",
    show_default=True,
    help="What holds besides the claims below: confined is no write outside or to its configuration; "
    "network is workspace-write with the network on.",
)
@click.option(
    "--write", metavar="PATH", multiple=True, help="Claim that commands can write PATH. Can be repeated."
)
@click.option(
    "--deny-write",
    metavar="PATH",
    multiple=True,
    help="Claim that commands cannot write PATH. Can be repeated.",
)
@click.option(
    "--network",
    metavar="URL",
    multiple=True,
    help="Claim that commands can reach URL: http, https or tcp://HOST:PORT.",
)
@click.option(
    "--deny-network",
    metavar="URL",
    multiple=True,
    help="Claim that commands cannot reach URL. Can be repeated.",
)
@click.option(
    "-c", "overrides", metavar="KEY=VALUE", multiple=True, help="A setting that codex is started with."
)
@click.option("--profile", metavar="FILE", help="Use the limits in FILE, as `holdfast exec --profile` does.")
@click.option("--again", is_flag=True, help="Run `codex exec` again, even if it passed since the last boot.")
@click.option(
    "--wait",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, 86400),
    default=0,
    help="Try again until it passes or this time is over.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema.")
def assert_(
    agent: str | None,
    binary: Path | None,
    home: Path | None,
    cwd: Path | None,
    expect: str,
    write: tuple[str, ...],
    deny_write: tuple[str, ...],
    network: tuple[str, ...],
    deny_network: tuple[str, ...],
    overrides: tuple[str, ...],
    profile: str | None,
    again: bool,
    seconds: float,
    as_json: bool,
) -> None:
    """Prove that an agent runs commands and that denials hold.

    A command runs the way the agent would run it, without a model and without the network, and says what it
    could touch; the same is tried outside, since what fails there as well shows nothing.

    Exit code 0: everything holds; 1: something does not; 2: it could not be judged.

    \b
    Examples:
      holdfast doctor assert
      holdfast doctor assert --agent codex
    """
    from holdfast.doctor.assertion import assertion, claims

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was made is removed
    try:
        found = assertion.wait(
            assertion.AssertOrder(
                cwd=Path(os.path.abspath(cwd or Path.cwd())),
                home=Path(os.path.abspath(home or os.environ.get("CODEX_HOME") or Path.home() / ".codex")),
                binary=assertion.find(agent, binary),
                asked=claims.parse_claims(
                    write=tuple(map(os.path.abspath, write)),
                    deny_write=tuple(map(os.path.abspath, deny_write)),
                    network=network,
                    deny_network=deny_network,
                ),
                expect=expect,
                overrides=overrides,
                profile=profile,
                again=again,
            ),
            seconds,
            lambda text: click.echo(f"holdfast: {printable(text)}", err=True),
        )
    except HoldfastError as exc:
        click.echo(f"holdfast: {printable(str(exc))}", err=True)
        if exc.remedy:
            click.echo(f"  try: {pasteable(printable(exc.remedy))}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(found.report()))
    else:
        _show(found)
    sys.exit(claims.EXIT[found.verdict])


def _show(found: "AssertionReport") -> None:
    who = " ".join(filter(None, (found.agent, found.version, f"({found.binary})" if found.binary else "")))
    held = sum(one.holds for one in found.judged)
    lines = [f"{found.verdict}: {who}: {held} of {len(found.judged)} claims hold"]
    lines += [f"  {step.route}: {step.status}{f', {step.note}' if step.note else ''}" for step in found.steps]
    for one in found.judged:
        sign = "ok" if one.holds else "????" if one.got == "unknown" else "FAIL"
        route = f" [{one.route}]" if one.route else ""
        lines.append(f"{sign:>4}  {one.claim}: {one.got}, wanted {one.wanted}{route}")
        if not one.holds:
            lines.append(f"      seen: {one.evidence}")
            lines += [f"      try: {one.remedy}"] if one.remedy else []
    for cause in found.causes:
        lines.append(f"{cause['fingerprint']} ({cause['layer']}): {cause['cause']}")
        lines.append(f"      try: {cause['remedy']}")
    for line in lines:
        click.echo(printable(line))
