"""A session as the facets see one, without a server: every answer is the test's."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from holdfast.errors import HoldfastError
from holdfast.wire.paths import PathUri
from holdfast.wire.rpc import JsonValue
from tests.support.patience import patient

Answer: TypeAlias = Callable[[dict[str, Any]], Any]


class FakeCaller:
    """Answers by method: a value, an error to raise, or a function of the params that may be async."""

    def __init__(self, **answers: object) -> None:
        """Underscores in names stand for slashes, as in `fs_open`."""
        self.answers = {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.cleanups: list[str] = []
        self._news = asyncio.Event()
        self._hearers: dict[str, list[Callable[[JsonValue], None]]] = defaultdict(list)
        self._loss_handlers: list[Callable[[HoldfastError], None]] = []

    async def call(
        self, method: str, params: object, *, timeout_s: float | None = None, cleanup: bool = False
    ) -> JsonValue:
        sent = msgspec.to_builtins(params, enc_hook=_to_wire)
        self.calls.append((method, sent))
        self._news.set()
        if cleanup:
            self.cleanups.append(method)
        answer = self.answers[method]
        if callable(answer):
            answer = answer(sent)
            if isinstance(answer, Awaitable):
                answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def on(self, method: str, handle: Callable[[JsonValue], None]) -> Callable[[], None]:
        self._hearers[method].append(handle)
        return lambda: self._hearers[method].remove(handle)

    def on_lost(self, handle: Callable[[HoldfastError], None]) -> Callable[[], None]:
        self._loss_handlers.append(handle)
        return lambda: self._loss_handlers.remove(handle)

    def push(self, method: str, params: JsonValue) -> None:
        """A notification from the server."""
        for handle in self._hearers[method]:
            handle(params)

    def lose(self, reason: HoldfastError) -> None:
        """The link dies."""
        for handle in self._loss_handlers:
            handle(reason)

    def methods(self) -> list[str]:
        return [method for method, _ in self.calls]

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [params for called, params in self.calls if called == method]

    async def called(self, method: str, times: int = 1) -> None:
        """Wait until the method was called so often."""
        async with asyncio.timeout(patient(20)):
            while self.methods().count(method) < times:
                self._news.clear()
                await self._news.wait()


def _to_wire(value: object) -> str:
    if isinstance(value, PathUri):
        return value.uri
    raise TypeError(f"no message has a member of type {type(value)}")
