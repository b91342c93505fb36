"""The first words on every link: initialize, or resume, and who is there."""

from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.client.connection import Connection
from holdfast.client.target import Target
from holdfast.client.transport import dial
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    MethodNotFound,
    ProtocolMismatch,
    RemoteProtocolError,
    Unreachable,
)
from holdfast.wire.environment import EnvironmentInfo, InitializeParams

CLIENT_NAME: Final = "holdfast"
INFO_S: Final = 30.0  # environment/info looks for a shell; the reference allows as much


class Hello(msgspec.Struct, rename="camel"):
    """What a server answers; old ones leave the second member out."""

    session_id: str
    environment_info: EnvironmentInfo | None = None


@dataclass(frozen=True, slots=True)
class Doorway:
    """Where to knock, and for how long."""

    target: Target
    connect_timeout_s: float
    initialize_timeout_s: float

    async def enter(self, connection: Connection, resume: str | None, *, introduce: bool = False) -> Hello:
        """A link on which every method may be used; to `introduce` is to say who is there.

        Raises:
            Unreachable: nobody answers in time, or hangs up.
            TokenRefused: the token is not accepted.
            ProtocolMismatch: whoever answers is no exec server.
            HoldfastError: the server's own refusal, such as an unknown session.
        """
        await dial(self.target, connection, timeout_s=self.connect_timeout_s)
        try:
            return await self._shake_hands(connection, resume, introduce=introduce)
        except BaseException as exc:
            connection.drop("the handshake failed")
            if connection.link is not None:
                await connection.link.aclose()
            if isinstance(exc, ConnectionLost | RemoteProtocolError | MethodNotFound):
                raise self._verdict(connection, exc) from None
            raise

    async def _shake_hands(self, connection: Connection, resume: str | None, *, introduce: bool) -> Hello:
        params = InitializeParams(CLIENT_NAME, resume, holdfast=True)
        try:
            answer = await connection.call("initialize", params, timeout_s=self.initialize_timeout_s)
            hello = msgspec.convert(answer, Hello)
            if resume not in (None, hello.session_id):
                raise ProtocolMismatch("the server resumed another session than asked for")
            connection.notify("initialized", {})
            if hello.environment_info is None and introduce:
                answer = await connection.call("environment/info", None, timeout_s=INFO_S)
                hello.environment_info = msgspec.convert(answer, EnvironmentInfo)
        except TimeoutError:
            raise Unreachable(f"{self.target} accepts connections and does not answer") from None
        except msgspec.ValidationError as exc:
            raise ProtocolMismatch(str(exc)) from None
        return hello

    def _verdict(self, connection: Connection, error: HoldfastError) -> HoldfastError:
        """A link that ends in the middle of the handshake, in terms of who may be at the other end."""
        cause = connection.lost if isinstance(connection.lost, RemoteProtocolError) else error
        if isinstance(cause, Unreachable):
            return cause
        if isinstance(cause, ConnectionLost):
            return Unreachable(f"{self.target} hung up: {cause}", remedy="what does its log say?")
        return ProtocolMismatch(f"{self.target} is no exec server: {cause}", remedy="is this its address?")
