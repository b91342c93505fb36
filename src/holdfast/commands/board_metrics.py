"""`holdfast board metrics`: parse, call, print."""

from typing import TYPE_CHECKING

import click

from holdfast.commands.boarding import Verb, with_store

if TYPE_CHECKING:
    from holdfast.board.rules.metrics import Recent
    from holdfast.board.store import Store


@click.command(cls=Verb)
@click.argument("name")
@with_store()
def metrics(store: "Store", name: str) -> dict[str, object]:
    """Print metrics of a board for Prometheus.

    Tasks are counted as they are. What is called recent (outcomes, usage, how long tasks waited) is read
    off the newest 10,000 events.

    \b
    Example:
      holdfast board metrics crew
    """
    from holdfast.board.rules.metrics import exposition, profiles

    found, recent = store.stats(name), store.recent(name)
    return {
        "tasks": found.tasks,
        "oldestReadyMs": found.oldest_ready_ms,
        "recent": recent,
        "profiles": profiles(recent),
        "text": exposition(name, found.tasks, found.oldest_ready_ms, recent),
    }


def used(recent: "Recent") -> tuple[dict[str, object], list[str]]:
    """What recent runs used by profile, for programs and for people."""
    from holdfast.board.rules.budget import describe, to_json
    from holdfast.board.rules.metrics import profiles
    from holdfast.board.rules.metrics import used as all_of

    found = profiles(recent)
    members: dict[str, object] = {
        name: {**to_json(all_of(one)), "runs": one.runs, "told": one.told} for name, one in found.items()
    }
    lines = [
        f"used by {name:<16} {describe(all_of(one))} (known of {one.told} of {one.runs} recent runs)"
        for name, one in found.items()
    ]
    return members, lines
