"""One of many processes at one board: `python -m tests.support.board_worker VERB ADDRESS [ARGUMENT]`.

Says "here" when its store is open and waits for a line, so that all begin at once. Then it says what the
store acknowledged, one line each, as soon as that has happened.
"""

import itertools
import sys
from collections.abc import Callable, Iterator

from holdfast.board.rules.rows import NewTask
from holdfast.board.store import Store, open_store


def claim(store: Store, name: str) -> Iterator[str]:
    """Every task it wins, until there is none."""
    while (won := store.claim("b", worker=name)) is not None:
        yield won[0].id


def create(store: Store, key: str) -> Iterator[str]:
    """One task for each of some keys that others use as well."""
    for number in range(20):
        yield store.create("b", NewTask(title="the same"), key=f"{key}{number}").id


def work(store: Store, name: str) -> Iterator[str]:
    """Create, claim and complete for ever; each step is said once it is acknowledged."""
    for number in itertools.count():
        task = store.create("b", NewTask(title=f"{name} {number}"))
        yield f"created {task.id}"
        store.attach(task.id, "name", name.encode())
        yield f"attached {task.id} {name}"
        won = store.claim("b", worker=name)
        if won is not None:
            yield f"claimed {won[0].id} {won[1].id}"
            store.complete(won[1].ref, "e", "ok")
            yield f"completed {won[0].id}"


def tangle(store: Store, name: str) -> Iterator[str]:
    """Finish tasks whose children have them in common, so that changes get in each other's way."""
    while (won := store.claim("b", worker=name)) is not None:
        store.heartbeat(won[1].ref)
        store.run_comment(won[1].ref, "c", "hello")
        yield store.complete(won[1].ref, "e", "ok").id


def bounded(store: Store, host: str) -> Iterator[str]:
    """Claim and complete as caps and pauses allow, until everything is done."""
    while store.stats("b").tasks["done"] < store.stats("b").total:
        won = store.claim("b", worker=f"w of {host}", host=host, assignees=["coder", "writer"])
        if won is None:
            store.changed(0.05)
            continue
        yield store.complete(won[1].ref, "e", "ok").id


VERBS: dict[str, Callable[[Store, str], Iterator[str]]] = {
    "claim": claim,
    "create": create,
    "work": work,
    "tangle": tangle,
    "bounded": bounded,
}


def main(verb: str, address: str, argument: str) -> None:
    with open_store(address) as store:
        sys.stdout.write("here\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for line in VERBS[verb](store, argument):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
