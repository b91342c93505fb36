"""`holdfast doctor`: parse, call, print."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Final

import click

from holdfast.commands.doctor_assert import assert_

if TYPE_CHECKING:
    from holdfast.doctor.rules import Finding

_SIGNS: Final = {
    "OK": ("ok", "green"),
    "NOTE": ("note", "blue"),
    "DEGRADED": ("weak", "yellow"),
    "BROKEN": ("FAIL", "red"),
}


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with a stable schema.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Say what works on this machine, what does not, and what to type.

    Exit code 0: all good; 1: something is weaker than it could be; 2: something does not work.
    """
    if context.invoked_subcommand is not None:
        return
    from holdfast.doctor import facts, rules

    found = rules.findings(asyncio.run(facts.gather()))
    if as_json:
        tree = {"schemaVersion": rules.SCHEMA_VERSION, "findings": [finding.report() for finding in found]}
        click.echo(json.dumps(tree))
    else:
        _show(found)
    sys.exit(rules.exit_code(found))


doctor.add_command(assert_)


def _show(found: "Iterable[Finding]") -> None:
    plain = bool(os.environ.get("NO_COLOR"))
    for finding in found:
        word, colour = _SIGNS[finding.severity.name]
        line = f"{click.style(f'{word:>4}', fg=colour)}  {finding.title}"
        click.echo(line, color=False if plain else None)
        if finding.severity and finding.evidence:
            click.echo(f"      seen: {finding.evidence}")
        if finding.remedy:
            click.echo(f"      try: {finding.remedy}")


@doctor.command()
@click.argument("file", type=click.File("r", errors="replace"), default="-")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with a stable schema.")
def explain(file: IO[str], as_json: bool) -> None:
    """Name the cause of an error text, from FILE or standard input.

    Exit code 0: something was recognised; 1: nothing was.
    """
    from holdfast.doctor import explanation

    found = explanation.explain(file.read())
    if as_json:
        click.echo(json.dumps(explanation.report(found)))
    else:
        for line in explanation.lines(found):
            click.echo(line)
    sys.exit(0 if found else 1)
