"""The life of an executor behind a registry: register, dial, serve, and dial again.

The first registration decides: whatever goes wrong with it ends the process, but for a registry that cannot
tell right now who asks. After that an ended connection is dialled again at the same address; only a relay
that refuses the address with 4xx makes us register again.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import HoldfastError, StartupError
from holdfast.rendezvous.attempts import Redial, registering
from holdfast.rendezvous.registryclient import Registry, RegistryUnavailable
from holdfast.rendezvous.relaysocket import UpgradeRefused, dial_relay
from holdfast.server.remote.relayedge import RelayEdge, StreamEnd, StreamPort
from holdfast.server.remote.streams import Streams, Validate
from holdfast.wire.noise import KeyPair
from holdfast.wire.registry import AUTHENTICATION_DOWN, RegisterAnswer

if TYPE_CHECKING:
    from holdfast.server.connection import ExecConnection

log = logging.getLogger(__name__)


class ExecStream:
    """A stream that leads to commands and files here."""

    def __init__(
        self,
        port: StreamPort,
        connect: "Callable[[StreamPort], ExecConnection]",
        adopt: Callable[["asyncio.Task[None]"], None],
    ) -> None:
        self._connection = connect(port)
        self._task = asyncio.get_running_loop().create_task(self._connection.run())
        adopt(self._task)
        self._task.add_done_callback(lambda _: port.finish())

    def receive(self, message: bytes) -> None:
        self._connection.receive(message)

    def on_writing_paused(self) -> None:
        self._connection.on_writing_paused()

    def on_writing_resumed(self) -> None:
        self._connection.on_writing_resumed()

    def close(self) -> None:
        self._task.cancel()  # the session can be resumed at once


class RemoteExecutor:
    """One environment at one registry. `lead` makes what a stream leads to."""

    def __init__(
        self, registry: Registry, identity: KeyPair, lead: Callable[[StreamPort], StreamEnd]
    ) -> None:
        self._registry = registry
        self._identity = identity
        self._lead = lead
        self._now = asyncio.get_running_loop().time

    async def run(self, on_registered: Callable[[], None] = lambda: None) -> NoReturn:
        """Serve until cancelled.

        Raises:
            StartupError: the registry does not take us, at first or again.
        """
        try:
            registered = await self._register()
            on_registered()
            redial = Redial(random.random)
            while True:
                began, reason = self._now(), "connect_failed"
                try:
                    error = await self._serve(registered)
                    reason = str(error)
                    log.info("the relay connection ended", extra={"reason": reason})
                except UpgradeRefused as exc:
                    log.warning("the relay refused the connection", extra={"reason": f"HTTP {exc.status}"})
                    began = self._now()
                    if 400 <= exc.status < 500:
                        registered = await self._register()
                except HoldfastError as exc:
                    log.warning("the relay cannot be reached", extra={"reason": str(exc)})
                    began = self._now()
                await asyncio.sleep(redial.after(self._now() - began))
        finally:
            await self._registry.aclose()

    async def _register(self) -> RegisterAnswer:
        delays = registering(random.random)
        while True:
            try:
                answer = await self._registry.register(self._identity.public)
            except RegistryUnavailable as exc:
                failure = exc.failure
                if failure is None or (failure.status, failure.code) != (502, AUTHENTICATION_DOWN):
                    raise StartupError(str(exc), remedy=exc.remedy) from None
                log.warning("the registry cannot tell who asks; trying again")
                await asyncio.sleep(next(delays))
            except HoldfastError as exc:
                raise StartupError(str(exc), remedy=exc.remedy) from None
            else:
                log.info("registered")
                return answer

    async def _serve(self, registered: RegisterAnswer) -> HoldfastError:
        """Why the connection ended. Raises: HoldfastError: there was none."""
        registration = registered.executor_registration_id

        async def validate(asked: Validate) -> bool:
            return await self._registry.validate(
                registration, asked.key, asked.authorization, asked.stream_id
            )

        streams = Streams(self._identity, self._registry.environment_id, registration)
        edge = RelayEdge(streams, validate=validate, lead=self._lead)
        try:
            await dial_relay(registered.url, edge, headers={"x-request-id": f"req_{secrets.token_hex(16)}"})
            log.info("connected to the relay")
            return await edge.ended
        finally:
            await edge.aclose()
