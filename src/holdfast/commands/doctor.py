"""`holdfast doctor`: parse, call, print."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from holdfast.commands.doctor_assert import assert_
from holdfast.commands.doctor_compare import compare
from holdfast.commands.doctor_selfcheck import selfcheck
from holdfast.commands.oneline import OneLine, fail, printable
from holdfast.commands.pasting import pasteable
from holdfast.errors import HoldfastError, NotFound, OperationFailed

if TYPE_CHECKING:
    from holdfast.doctor.facts.rules import Finding

CHUNK_BYTES: Final = 64 * 1024  # of a log at a time: a pipe holds as much, and memory stays small
_SIGNS: Final = {
    "OK": ("ok", "green"),
    "NOTE": ("note", "blue"),
    "DEGRADED": ("weak", "yellow"),
    "BROKEN": ("FAIL", "red"),
}


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check what works on this machine, and say what to type.

    Exit code 0: all good; 1: something is weaker than it could be; 2: something does not work.

    \b
    Examples:
      holdfast doctor
      holdfast doctor explain < agent.log
    """
    if context.invoked_subcommand is not None:
        return
    from holdfast.doctor.facts import facts, rules

    found = rules.findings(asyncio.run(facts.gather()))
    if as_json:
        tree = {"schemaVersion": rules.SCHEMA_VERSION, "findings": [finding.report() for finding in found]}
        click.echo(json.dumps(tree))
    else:
        _show(found)
    sys.exit(rules.exit_code(found))


doctor.add_command(assert_)
doctor.add_command(compare)
doctor.add_command(selfcheck)


def _show(found: "Iterable[Finding]") -> None:
    plain = bool(os.environ.get("NO_COLOR"))
    for finding in found:
        word, colour = _SIGNS[finding.severity.name]
        line = f"{click.style(f'{word:>4}', fg=colour)}  {finding.title}"
        click.echo(line, color=False if plain else None)
        if finding.severity and finding.evidence:
            click.echo(f"      seen: {finding.evidence}")
        if finding.remedy:
            click.echo(f"      try: {pasteable(finding.remedy)}")


@doctor.command(cls=OneLine)
@click.argument("file", default="-")
@click.option("--here", is_flag=True, help="The text comes from this machine: also check the causes here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema.")
def explain(file: str, here: bool, as_json: bool) -> None:
    """Explain the causes of errors in a log.

    The text comes from FILE or from standard input.

    Any size and any encoding. Secrets that can be told by their shape are not repeated.

    Exit codes: 0 something was recognised; 1 nothing was; 3 FILE is not there; 71 it cannot be read.

    \b
    Examples:
      holdfast doctor explain agent.log
      npm test 2>&1 | holdfast doctor explain
    """
    from holdfast.doctor.explain import explanation

    reading = explanation.Reading()
    try:
        with _opened(file) as log:
            while data := log.read(CHUNK_BYTES):
                reading.feed(data)
    except OSError as exc:
        fail(_unreadable(file, exc))
    found = reading.causes()
    if here and found:
        from holdfast.doctor.explain.explanation import compare_with_host
        from holdfast.sandbox.host.probes import probe

        found = compare_with_host(found, asyncio.run(probe()))
    if as_json:
        click.echo(json.dumps(explanation.report(found)))
    else:
        for line in explanation.lines(found):
            click.echo(printable(line))
    sys.exit(0 if found else 1)


def _opened(file: str) -> BinaryIO:
    if file != "-":
        return open(file, "rb", buffering=0)
    if sys.stdin.isatty():
        click.echo("reading what you type or paste; end with Ctrl-D", err=True)
    return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)


def _unreadable(file: str, exc: OSError) -> HoldfastError:
    cls = NotFound if isinstance(exc, FileNotFoundError) else OperationFailed
    remedy = "holdfast doctor explain FILE, or pipe the text into holdfast doctor explain -"
    return cls(f"cannot read {file}: {exc.strerror}", remedy=remedy)
