"""One-shot watches of the other machine's files.

The protocol has one watch per connection and lets it fire for no reason, so a watch means only: forget what
you remember about these paths. What ends one early, a newer watch or a lost link, fires it as well.
"""

import asyncio
import itertools
from collections.abc import Sequence

from holdfast.client.answer import typed
from holdfast.client.session import Caller
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.wire.files import MissingChanged, WatchMissingParams, WatchResult
from holdfast.wire.paths import PathUri
from holdfast.wire.rpc import JsonValue


class Watch:
    """Armed when you get it."""

    def __init__(self, watch_id: int) -> None:
        self._id = watch_id
        self._fired = asyncio.Event()

    @property
    def fired(self) -> bool:
        """Whether something has, or may have, changed."""
        return self._fired.is_set()

    async def changed(self) -> None:
        """Wait until it has fired."""
        await self._fired.wait()


class Watches:
    """The watch of one session."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._numbers = itertools.count(1)
        self._current: Watch | None = None
        caller.on("fs/missingChanged", self._on_changed)
        caller.on_lost(self._on_lost)

    async def arm(self, missing: Sequence[PathUri], present: PathUri | None) -> Watch:
        """Raises InvalidRequest if the server will not watch these paths."""
        self._fire()
        watch = self._current = Watch(next(self._numbers))
        params = WatchMissingParams(watch._id, list(missing), present)
        answer = typed(await self._caller.call("fs/watchMissing", params), WatchResult)
        if not answer.watching:
            raise InvalidRequest(
                "the server does not watch these paths",
                remedy="missing paths must not exist, the present one must, and none leads through a link",
            )
        return watch

    def _on_changed(self, params: JsonValue) -> None:
        if self._current is not None and typed(params, MissingChanged).watch_id == self._current._id:
            self._fire()

    def _on_lost(self, _: HoldfastError) -> None:
        self._fire()

    def _fire(self) -> None:
        watch, self._current = self._current, None
        if watch is not None:
            watch._fired.set()
