"""`--home`, as every command that has workers takes it."""

from pathlib import Path

import click


def _given(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    from holdfast.home import default_home

    return (value or default_home()).absolute()  # daemons work elsewhere


home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    callback=_given,
    is_eager=True,  # the default of --store is in it
    help="The directory for workers and workspaces [default: $HOLDFAST_HOME, or below $XDG_STATE_HOME].",
)
