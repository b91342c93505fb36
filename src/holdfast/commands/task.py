"""`holdfast task`: the commands about tasks together."""

import click

from holdfast.commands import task_change, task_look, task_review, task_runs


@click.group()
def task() -> None:
    """Tasks on a board: make, find, move and explain them.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 conflict; 5 the store is down or damaged.
    """


for _command in (*task_change.COMMANDS, *task_look.COMMANDS, *task_review.COMMANDS, *task_runs.COMMANDS):
    task.add_command(_command)
