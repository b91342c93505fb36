"""`holdfast task`: the group of the commands about tasks."""

import click

from holdfast.commands.clickoptions import SECTIONS, SectionedGroup
from holdfast.commands.task import change, look, review, runs


@click.group(cls=SectionedGroup, sections=SECTIONS["task"])
def task() -> None:
    """Create, find, change and explain tasks.

    An ID or a RUN may be shortened, as long as the beginning is unique among the tasks, or among the runs of
    the task: t_1f2e or 1f2e.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 conflict; 5 the store is down or damaged.

    \b
    Examples:
      holdfast task create "Fix the flaky test" --board crew --assignee codex
      holdfast task list --board crew
      holdfast task why 1f2e
    """


for _command in (*change.COMMANDS, *look.COMMANDS, *review.COMMANDS, *runs.COMMANDS):
    task.add_command(_command)
