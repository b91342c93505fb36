"""A link through a relay to an executor that registered itself: one WebSocket, one stream, one channel.

Every connection needs its own answer of the registry. The first one of a session is requested several times,
for a bounded time. Later ones are requested once, since session recovery has its own delays. The first
connection fixes the executor's identity: another key in a later answer ends the session.

A message is sent record by record, as the connection takes them, so that a ping never waits behind a long
message.
"""

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Final

from holdfast import tracing
from holdfast.client.links.target import NoiseTarget, Receiver
from holdfast.errors import ConnectionLost, HoldfastError, ProtocolMismatch, RemoteProtocolError, Unreachable
from holdfast.rendezvous.attempts import FirstContact
from holdfast.rendezvous.registryclient import Registry, RegistryUnavailable
from holdfast.rendezvous.relaysocket import RelaySocket, UpgradeRefused, dial_relay
from holdfast.wire import relayframes
from holdfast.wire.noise import SYSTEM, Channel, Handshake, KeyPair, Role, prologue
from holdfast.wire.registry import ConnectAnswer
from holdfast.wire.relayframes import Body, ReceiveWindow, RelayFrame

HANDSHAKE_S: Final = 10.0  # for the executor, and for the registry that it asks about us
WRITE_HIGH_BYTES: Final = 1024 * 1024  # unsent requests before further ones wait
WRITE_LOW_BYTES: Final = WRITE_HIGH_BYTES // 4
RESET: Final = "Noise relay stream reset"  # never the reason that came with it: it is not authenticated


async def dial_noise(target: NoiseTarget, receiver: Receiver, *, timeout_s: float) -> "NoiseLink":
    """Open a link to the executor of this environment, ready for messages.

    Raises:
        Unreachable: the registry, the relay or the executor does not answer, or is temporarily unavailable.
        TokenRefused: the registry does not accept the token.
        ProtocolMismatch: a peer is not the same as before, or not the expected one.
    """
    with tracing.client_span(tracing.NOISE_CONNECT):
        return await _dial(target, receiver, timeout_s)


async def _dial(target: NoiseTarget, receiver: Receiver, timeout_s: float) -> "NoiseLink":
    identity = target.memory.identity = target.memory.identity or SYSTEM.keys()
    registry = Registry(target.registry_url, target.environment_id, target.headers)
    try:
        if target.pinned:
            bundle = await registry.connect(identity.public)
            return await _open(target, bundle, identity, receiver, timeout_s)
        bundle = await _first_bundle(registry, identity)
        try:
            return await _open(target, bundle, identity, receiver, timeout_s)
        except UpgradeRefused as exc:
            if exc.status != 401:
                raise
        bundle = await _first_bundle(registry, identity)
        return await _open(target, bundle, identity, receiver, timeout_s)
    finally:
        await registry.aclose()


async def _first_bundle(registry: Registry, identity: KeyPair) -> ConnectAnswer:
    now = asyncio.get_running_loop().time
    contact = FirstContact(now(), random.random)
    while True:
        try:
            return await registry.connect(identity.public, timeout_s=contact.allowance(now()))
        except RegistryUnavailable:
            delay = contact.retry_in(now())
            if delay is None:
                raise
            await asyncio.sleep(delay)


async def _open(
    target: NoiseTarget, bundle: ConnectAnswer, identity: KeyPair, receiver: Receiver, timeout_s: float
) -> "NoiseLink":
    if target.pinned and target.pinned[0] != bundle.executor_public_key:
        raise ProtocolMismatch(
            "another executor answers for this environment now", remedy="connect again, to a new session"
        )
    link = NoiseLink(receiver, bundle, identity)
    await dial_relay(bundle.url, link, timeout_s=timeout_s)
    try:
        with tracing.client_span(tracing.NOISE_HANDSHAKE):
            await _until_established(link)
    except BaseException:
        link.abort(Unreachable("given up"))
        raise
    if not target.pinned:
        target.pinned.append(bundle.executor_public_key)
    return link


async def _until_established(link: "NoiseLink") -> None:
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            await link.established
    except TimeoutError:
        raise Unreachable(f"the executor did not answer within {HANDSHAKE_S:g} s") from None


class NoiseLink:
    """One stream. `established` completes once messages may flow."""

    def __init__(self, receiver: Receiver, bundle: ConnectAnswer, identity: KeyPair) -> None:
        self.established: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._receiver = receiver
        self._stream_id = str(uuid.uuid4())
        self._authorization = bundle.harness_key_authorization.encode()
        self._handshake = Handshake(
            Role.INITIATOR,
            identity,
            prologue(bundle.environment_id, bundle.executor_registration_id, self._stream_id),
            peer=bundle.executor_public_key,
        )
        self._channel: Channel | None = None
        self._window = ReceiveWindow()
        self._loop = asyncio.get_running_loop()
        self._gap_timer: asyncio.TimerHandle | None = None
        self._socket: RelaySocket | None = None
        self._aborted = False
        self._writable = True
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._frames: Iterator[bytes] | None = None
        self._full = False

    # --- the socket's side

    def on_open(self, socket: RelaySocket) -> None:
        self._socket = socket
        first = self._handshake.write(self._authorization)
        socket.send(relayframes.resume(self._stream_id))
        socket.send(relayframes.handshake(self._stream_id, first))

    def on_frame(self, frame: bytes | None) -> None:
        if frame is None:
            raise RemoteProtocolError("the relay sends text")
        found = relayframes.decode(frame)
        if found.stream_id != self._stream_id:
            return  # a frame of another stream is ignored
        body = relayframes.check(found)
        match body:
            case Body.RESET:
                raise ConnectionLost(RESET)
            case Body.HANDSHAKE if self._channel is None:
                self._finish(found.payload)
            case Body.DATA if self._channel is not None:
                self._receive(self._channel, found)
            case Body.HANDSHAKE | Body.DATA:
                raise RemoteProtocolError("the relay sends what is not due")

    def on_end(self, error: HoldfastError) -> None:
        if self._gap_timer is not None:
            self._gap_timer.cancel()
        if self._channel is not None:
            self._receiver.on_end(error)
        elif not self.established.done():
            broken = "" if isinstance(error, ConnectionLost) else "the handshake failed: "
            self.established.set_exception(Unreachable(f"{broken}{error}"))

    def on_writable(self, now: bool) -> None:
        self._writable = now
        self._pump()

    # --- the channel

    def _finish(self, message: bytes) -> None:
        self._handshake.read(message)
        self._channel = self._handshake.finish()
        self._receiver.on_open(self)
        if not self.established.done():
            self.established.set_result(None)

    def _receive(self, channel: Channel, frame: RelayFrame) -> None:
        for record in self._window.push(frame.seq, frame.payload, self._loop.time()):
            for message in channel.open(record):
                if self._aborted:
                    return
                self._receiver.on_message(message)
        if self._window.gap_ends is not None and self._gap_timer is None:
            self._check_gap()

    def _check_gap(self) -> None:
        """End a link that lost a record.

        Nothing else would: pings are still answered, and calls have no deadline.
        """
        self._gap_timer = None
        ends = self._window.gap_ends
        if ends is not None and self._loop.time() >= ends:
            self.abort(ConnectionLost("a record from the executor did not come"))
        elif ends is not None:
            self._gap_timer = self._loop.call_at(ends, self._check_gap)

    def _seal(self, channel: Channel, message: bytes) -> Iterator[bytes]:
        for seq, sealed in channel.seal(message):
            yield relayframes.data(self._stream_id, seq, sealed)

    def _pump(self) -> None:
        while self._writable and self._output and self._channel is not None and self._socket is not None:
            self._frames = self._frames or self._seal(self._channel, self._output[0])
            frame = next(self._frames, None)
            if frame is not None:
                self._socket.send(frame)
                continue
            self._frames = None
            self._output_bytes -= len(self._output.popleft())
        if self._full and self._output_bytes <= WRITE_LOW_BYTES:
            self._full = False
            self._receiver.on_writable(True)

    # --- what the receiver uses

    def send(self, message: bytes) -> None:
        self._output.append(message)
        self._output_bytes += len(message)
        try:
            self._pump()
        except RemoteProtocolError as exc:  # the sequence numbers are used up
            self.abort(exc)
        if self._output_bytes >= WRITE_HIGH_BYTES and not self._full:
            self._full = True
            self._receiver.on_writable(False)

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def abort(self, error: HoldfastError) -> None:
        self._aborted = True
        if self._socket is not None:
            self._socket.abort(error)

    async def aclose(self) -> None:
        if self._socket is not None:
            await self._socket.aclose()
