"""The life of an executor behind a registry: register, dial, serve, and dial again.

A route is how the executor is reached: through a relay (`RelayRoute`), or by a host that it dials (`direct`).
Any failure of the first registration ends the process, except that of a relay's registry that cannot
authenticate at the moment. After that an ended connection is dialled again at the same address. Only a
refusal of the address, as `rendezvous.attempts` interprets it, makes us register again or give up.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from holdfast.errors import HoldfastError, StartupError
from holdfast.rendezvous.attempts import AfterRefusal, Redial, after_relay, registering
from holdfast.rendezvous.registryclient import Registry, RegistryUnavailable
from holdfast.rendezvous.relaysocket import RelayLost, UpgradeRefused, dial_relay
from holdfast.server.metrics import timed
from holdfast.server.remote.relayedge import Lead, Port, RelayEdge
from holdfast.server.remote.streams import Streams, Validate
from holdfast.wire.noise import KeyPair
from holdfast.wire.registry import AUTHENTICATION_DOWN, RegisterAnswer

if TYPE_CHECKING:
    from holdfast.server.connection import ExecConnection
    from holdfast.server.metrics import PrometheusMetrics

log = logging.getLogger(__name__)
R = TypeVar("R")


class Pace(Protocol):
    def after(self, lasted_s: float) -> float:
        """Return how long to wait after a connection that lasted so long, 0 if there was none."""


class Route(Protocol[R]):
    """How an executor is reached. `R` is the answer to a registration."""

    registry: Registry
    waits_for_registry: bool  # whether to retry while the registry cannot authenticate

    @property
    def redial(self) -> Pace: ...

    def judge(self, status: int) -> AfterRefusal:
        """Interpret the status of a refused upgrade."""

    async def register(self) -> R:
        """Raises: HoldfastError: the registry refuses us, or is unavailable."""

    async def serve(self, registered: R) -> HoldfastError:
        """Dial and serve; return why the connection ended. Raises: HoldfastError: there was none."""


class ExecStream:
    """A stream that leads to commands and files here."""

    def __init__(
        self,
        port: Port,
        connect: "Callable[[Port], ExecConnection]",
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


class RemoteExecutor(Generic[R]):
    """One environment at one registry."""

    def __init__(self, route: Route[R], metrics: "PrometheusMetrics | None" = None) -> None:
        self._route = route
        self._metrics = metrics
        self._now = asyncio.get_running_loop().time

    async def run(self, on_registered: Callable[[], None] = lambda: None) -> NoReturn:
        """Serve until cancelled.

        Raises:
            StartupError: the registry refuses us, at first or later.
        """
        route = self._route
        try:
            registered = await self._register()
            on_registered()
            while True:
                began, lasted_s, why = self._now(), 0.0, "connect_failed"
                try:
                    error = await route.serve(registered)
                    lasted_s = self._now() - began
                    why = error.why if isinstance(error, RelayLost) else "read_error"
                    log.info("the connection ended", extra={"reason": str(error)})
                except UpgradeRefused as exc:
                    log.warning("the connection was refused", extra={"reason": str(exc)})
                    match route.judge(exc.status):
                        case AfterRefusal.REGISTER:
                            why = "registration_rejected"
                            registered = await self._register()
                        case AfterRefusal.GIVE_UP:
                            raise StartupError(str(exc)) from None
                except HoldfastError as exc:
                    log.warning("there is no connection", extra={"reason": str(exc)})
                if self._metrics is not None:
                    self._metrics.record_reconnect(why)
                await asyncio.sleep(route.redial.after(lasted_s))
        finally:
            await route.registry.aclose()

    async def _register(self) -> R:
        delays = registering(random.random)
        while True:
            try:
                with timed(self._metrics, "registration"):
                    answer = await self._route.register()
            except RegistryUnavailable as exc:
                failure = exc.failure
                passing = failure is not None and (failure.status, failure.code) == (502, AUTHENTICATION_DOWN)
                if not (passing and self._route.waits_for_registry):
                    raise StartupError(str(exc), remedy=exc.remedy) from None
                log.warning("the registry cannot tell who asks; trying again")
                await asyncio.sleep(next(delays))
            except HoldfastError as exc:
                raise StartupError(str(exc), remedy=exc.remedy) from None
            else:
                log.info("registered")
                return answer


class RelayRoute:
    """The route through a relay, by streams that it cannot read. `lead` creates the end of a stream."""

    waits_for_registry = True

    def __init__(
        self, registry: Registry, identity: KeyPair, lead: Lead, metrics: "PrometheusMetrics | None" = None
    ) -> None:
        self.registry = registry
        self.redial = Redial(random.random)
        self._identity = identity
        self._lead = lead
        self._metrics = metrics

    def judge(self, status: int) -> AfterRefusal:
        return after_relay(status)

    async def register(self) -> RegisterAnswer:
        return await self.registry.register(self._identity.public)

    async def serve(self, registered: RegisterAnswer) -> HoldfastError:
        registration = registered.executor_registration_id

        async def validate(asked: Validate) -> bool:
            return await self.registry.validate(registration, asked.key, asked.authorization, asked.stream_id)

        streams = Streams(self._identity, self.registry.environment_id, registration)
        edge = RelayEdge(streams, validate=validate, lead=self._lead)
        try:
            headers = {"x-request-id": f"req_{secrets.token_hex(16)}"}
            with timed(self._metrics, "rendezvous"):
                await dial_relay(registered.url, edge, headers=headers)
            log.info("connected to the relay")
            return await edge.ended
        finally:
            await edge.aclose()
