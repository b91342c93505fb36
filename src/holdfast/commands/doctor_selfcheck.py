"""`holdfast doctor selfcheck`: parse, call, print."""

import json
import sys

import click

from holdfast.commands.oneline import OneLine, fail, printable
from holdfast.errors import HoldfastError


class _Lines:
    """A line for each backend, when it is done."""

    def __init__(self) -> None:
        self._name, self._total, self._made, self._escaped = "", 0, 0, 0

    def begin(self, name: str, total: int) -> None:
        self._name, self._total, self._made, self._escaped = name, total, 0, 0

    def step(self, *, escaped: bool) -> None:
        self._made += 1
        self._escaped += escaped

    def end(self) -> None:
        click.echo(self._text(), err=True)

    def _text(self) -> str:
        wrong = f", {self._escaped} not as they should be" if self._escaped else ""
        return f"{self._name}: {self._made} of {self._total} attempts{wrong}"


class _Live(_Lines):
    """The same line, as it changes."""

    def step(self, *, escaped: bool) -> None:
        super().step(escaped=escaped)
        click.echo(f"\r{self._text()}", nl=False, err=True)

    def end(self) -> None:
        click.echo(f"\r{self._text()}", err=True)


@click.command(cls=OneLine)
@click.option(
    "--backend",
    type=click.Choice(["namespaces", "bwrap", "landlock"]),
    help="Try only this backend.  [default: every one that works here]",
)
@click.option("--user", metavar="NAME", help="Also try as this user; needs root.")
@click.option(
    "--only",
    metavar="PATTERN",
    multiple=True,
    help="Try only attempts or guarantees of this name, such as use-*. Can be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with a stable schema.")
def selfcheck(backend: str | None, user: str | None, only: tuple[str, ...], as_json: bool) -> None:
    """Try every known way out of the sandbox.

    Makes a few hundred attempts from inside, by each backend, on bait of its own, and prints which
    guarantees hold. Takes about a minute for each backend, and leaves nothing behind.

    Exit code 0: everything holds as declared; 1: something got out, or does not work inside; 2: nothing
    could be tried, or not what --backend and --user name.

    \b
    Examples:
      holdfast doctor selfcheck
      sudo holdfast doctor selfcheck --user me
    """
    from holdfast.doctor.escape import checkup, scorecard
    from holdfast.sandbox.plan.select import Backend

    progress = _Live() if sys.stderr.isatty() else _Lines()
    try:
        attempts = scorecard.choose_attempts(only)
        columns = checkup.check(None if backend is None else Backend(backend), user, attempts, progress)
    except HoldfastError as exc:
        fail(exc)
    except checkup.Interrupted as exc:
        sys.exit(128 + exc.signum)
    if as_json:
        click.echo(json.dumps(scorecard.report(columns)))
    else:
        for line in scorecard.lines(columns):
            click.echo(printable(line))
    sys.exit(scorecard.exit_code(columns))
