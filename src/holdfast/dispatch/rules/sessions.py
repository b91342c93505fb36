"""Which session of an agent CLI a run goes on with. Pure module.

A later run of a task (after a review, an answer, a failure) goes on where the one before it was, if its
profile and host are the same: the CLI's state is there. A session that did not even name itself when it was
gone on with is given up, and the next run begins a fresh one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.board.rules.rows import Run

RESUMES: Final = "resumes"  # in a run's metadata: the run in whose state its CLI went on


class AgentSession(NamedTuple):
    name: str
    owner: str  # the run whose worker's state holds it


def before(runs: Sequence[Run], run: Run) -> AgentSession | None:
    """Of the runs of a task, the oldest first, what this one can go on with."""
    own = [
        one
        for one in runs
        if (one.profile, one.host) == (run.profile, run.host) and one.generation < run.generation
    ]
    for earlier in reversed(own):
        named = earlier.metadata.get(RESUMES)
        # A worker can write there too: it is believed about runs of its own task only.
        owner = next((one.id for one in own if one.id == named), None)
        if earlier.session:
            return AgentSession(earlier.session, owner or earlier.id)
        if owner is not None:
            return None
    return None
