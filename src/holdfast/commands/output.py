"""How every command says that something is wrong: in one line, with a way out if there is one."""

import sys
from typing import Any, NoReturn

import click

from holdfast.errors import HoldfastError, UsageError, face


def fail(exc: HoldfastError) -> NoReturn:
    """Say what is wrong and exit with the error's code."""
    from holdfast.commands.pasting import pasteable

    click.echo(f"holdfast: {printable(str(exc))}", err=True)
    if exc.remedy:
        click.echo(f"  try: {pasteable(printable(exc.remedy))}", err=True)
    sys.exit(face(exc).exit)


def printable(text: str) -> str:
    """Whoever named a file or a server does not command our terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


class OneLine(click.Command):
    """Says what is wrong with its arguments as with everything else that is wrong."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as exc:
            fail(UsageError(exc.format_message()))
