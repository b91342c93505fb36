"""Serve clients that come through a relay, or a host that we dial, until told to stop, and watch standard
input.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.errors import RemoteProtocolError, StartupError
from holdfast.local.tasks import TaskSet
from holdfast.rendezvous.registryclient import Registry
from holdfast.server.edges.address import DirectAddress, RemoteAddress
from holdfast.server.edges.plainfiles import can_wait, piped
from holdfast.server.remote.agentidentity import AgentLogin
from holdfast.server.remote.credential import FIRST_LINE_S, MAX_LINE_BYTES, CredentialHolder
from holdfast.server.remote.direct import DirectRoute
from holdfast.server.remote.executing import RelayRoute, RemoteExecutor
from holdfast.server.remote.forwarding import ForwardedStream
from holdfast.server.remote.relayedge import Lead
from holdfast.wire.lines import LineReader
from holdfast.wire.noise import KeyPair

if TYPE_CHECKING:
    from holdfast.server.metrics import PrometheusMetrics


async def serve_remote(
    address: RemoteAddress | DirectAddress,
    lead: Lead,
    done: asyncio.Event,
    announce: Callable[[], None],
    metrics: "PrometheusMetrics | None" = None,
) -> None:
    """Serve until `done`, or until standard input ends where that matters.

    Raises:
        StartupError: the registry refuses us, or the credential on standard input is invalid.
    """
    loop = asyncio.get_running_loop()
    credential = address.credential if isinstance(address, RemoteAddress) and address.from_stdin else None
    holder = credential if isinstance(credential, CredentialHolder) else None
    stdin = StdinWatch(holder)
    if holder is not None or address.exit_on_stdin_close:
        source = sys.stdin.buffer
        watched = source if can_wait(source.fileno()) else os.fdopen(piped(source.fileno()), "rb")
        await loop.connect_read_pipe(lambda: stdin, watched)
    if holder is not None:
        await stdin.until_first()
    work = loop.create_task(_execute(address, lead, announce, metrics))
    stop = loop.create_task(done.wait())
    waiting: list[asyncio.Future[Any]] = [work, stop, stdin.ended]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in (work, stop):
        task.cancel()
    outcomes = await asyncio.gather(work, stop, return_exceptions=True)
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
    stdin.check()


async def _execute(
    address: RemoteAddress | DirectAddress,
    lead: Lead,
    announce: Callable[[], None],
    metrics: "PrometheusMetrics | None",
) -> NoReturn:
    """Raises: StartupError: the registry refuses us."""
    place = address.url, address.environment_id
    if isinstance(address, DirectAddress):
        registry = Registry(*place, sign=address.sign)
        direct = DirectRoute(registry, address.sign, lead, metrics)
        await RemoteExecutor(direct, metrics).run(announce)
    if isinstance(address.credential, AgentLogin):
        await address.credential.register_task()
    registry = Registry(*place, address.credential.headers)
    relayed = RelayRoute(registry, KeyPair.from_seed(address.seed), lead, metrics)
    await RemoteExecutor(relayed, metrics).run(announce)


async def forward_remote(address: RemoteAddress, url: str, signals: Sequence[signal.Signals]) -> None:
    """Run `holdfast forward`: forward streams of the relay to the exec server at `url`.

    Raises:
        StartupError: as `serve_remote` does.
    """
    done, streams = asyncio.Event(), TaskSet()
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    try:
        await serve_remote(address, lambda port: ForwardedStream(port, url, streams.keep), done, lambda: None)
    finally:
        await streams.aclose()


class StdinWatch(asyncio.Protocol):
    """Reads standard input to its end; with a holder every line is a credential for it."""

    def __init__(self, holder: CredentialHolder | None) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holder = holder
        self._first = asyncio.Event()
        self._error: StartupError | None = None
        self._lines = LineReader(max_bytes=MAX_LINE_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._holder is None or self.ended.done():
            return
        try:
            for line in self._lines.feed(data):
                self._holder.take(line)
                self._first.set()
        except RemoteProtocolError:
            self._end(StartupError("what came on standard input is no credential"))
        except StartupError as exc:
            self._end(exc)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._end(None)

    def _end(self, error: StartupError | None) -> None:
        if not self.ended.done():
            self._error = error
            self.ended.set_result(None)
        self._first.set()

    async def until_first(self) -> None:
        """Raises: StartupError: no credential came, or an invalid one."""
        try:
            async with asyncio.timeout(FIRST_LINE_S):
                await self._first.wait()
        except TimeoutError:
            raise StartupError(f"no credential came on standard input within {FIRST_LINE_S:g} s") from None
        if self._error is None and self.ended.done():
            raise StartupError("standard input ended without a credential")
        self.check()

    def check(self) -> None:
        """Raises: StartupError: the input was invalid."""
        if self._error is not None:
            raise self._error
