"""What a run said and changed: what is kept of it, or while it runs here what its worker says now."""

import hashlib
from pathlib import Path
from typing import Final

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import JsonObject, Run
from holdfast.board.store import Store
from holdfast.dispatch import runview
from holdfast.errors import NotFound

DIFF: Final = "diff.patch"
OUTPUT: Final = "output"
MAX_SHOWN: Final = 256 * 1024  # bytes of an output or a diff on the page; the rest can be saved as a file
MAX_LIVE: Final = 64 * 1024  # bytes of what a live worker said, the end of it: it is asked for every second


async def output(store: AsyncStore, home: Path, id: str, run: str | None, mark: str) -> JsonObject:
    """The end of what a run said; nothing again of what the page has, by its mark.

    Raises:
        NotFound: there is nothing, here.
    """

    def look(store: Store) -> tuple[Run, bytes | None]:
        found = runview.chosen(store, id, run)
        return found, runview.kept(store, found, OUTPUT)

    found, data = await store.ask(look)
    live = data is None
    if data is None:
        data = await runview.live_output(home, found, MAX_LIVE)
    if data is None:
        raise NotFound(f"no output of {found.id} is kept, and none of a worker is here")
    now = hashlib.sha256(data).hexdigest()[:16]
    answer: JsonObject = {"run": found.id, "live": live, "mark": now, "size": len(data)}
    if now == mark:
        return answer
    return answer | {"content": data[-MAX_SHOWN:].decode("utf-8", "replace")}


async def diff(store: AsyncStore, id: str, run: str | None) -> JsonObject:
    """The beginning of what a run changed. Raises NotFound."""

    def look(store: Store) -> tuple[Run, bytes | None]:
        found = runview.chosen(store, id, run)
        return found, runview.kept(store, found, DIFF)

    found, data = await store.ask(look)
    if data is None:
        raise NotFound(f"no diff is kept of {found.id}")
    return {"run": found.id, "size": len(data), "content": data[:MAX_SHOWN].decode("utf-8", "replace")}
