"""What a run said at its end that is not so. Its answer stands; whoever reads the result is told."""

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import Run, RunRef, TaskEvent
from holdfast.board.verbs import ledger, lists
from holdfast.errors import NotFound

CARDS: Final = "created_cards"  # in a run's metadata, as the tools of workers call them
FILES: Final = "artifacts"
MAX_NAMED: Final = 100  # of each that are looked at
MAX_WORD: Final = 300  # characters of each that are written down
KIND: Final = "claims_unverified"


class Unverified(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that the run did not make, files that are not in its workspace."""

    cards: list[str]
    files: list[str]


def named(run: Run, what: str) -> list[str]:
    """What a run says that it made; anything but names is no claim."""
    found = run.metadata.get(what)
    return [one for one in found if isinstance(one, str)][:MAX_NAMED] if isinstance(found, list) else []


def record(tx: Transaction, ref: RunRef, files: Sequence[str]) -> Unverified:
    """Check the tasks it named, and write down what is not so, once; `files` are those that are missing."""
    run = ledger.referred(tx, ref)
    found = Unverified(
        cards=[card[:MAX_WORD] for card in named(run, CARDS) if not _made(tx, run, card)],
        files=[name[:MAX_WORD] for name in files[:MAX_NAMED]],
    )
    told = msgspec.to_builtins(found)
    said = [event for event in lists.detail(tx, run.task_id).events if event.kind == KIND]
    if (found.cards or found.files) and not any(_same(event, run, told) for event in said):
        tx.log(run.board, KIND, "board", task=run.task_id, run=run.id, **told)
    return found


def _made(tx: Transaction, run: Run, card: str) -> bool:
    try:
        return lists.task(tx, card).created_by_run == run.id
    except NotFound:
        return False


def _same(event: TaskEvent, run: Run, told: object) -> bool:
    return event.run_id == run.id and event.payload == told
