"""Streams between this node and others, over a bus that connects all of them.

Where nodes cannot be addressed singly, a harness may reach any of them. That node asks the node of the
executor, which checks the bundle as if the harness had come there. Then a link carries frames between the
two. At the executor's node the link takes the place of the harness's socket, and all rules are those of a
socket. At the harness's node it is joined to the socket, and frames are not inspected.

A message that the bus loses ends the link: the stream is reset at the executor and the harness's socket is
closed, and both ends recover as after any other lost connection. The same happens when the bus is lost or too
slow, or a node is gone.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast import decoding
from holdfast.errors import RemoteProtocolError
from holdfast.relay.rules import crossing
from holdfast.relay.rules.crossing import ID_BYTES, NOBODY, Flow, Message, MessageKind, MessageLost, Opening
from holdfast.relay.sockets import HARD_BYTES, STALLED_S, Socket, SocketOwner

if TYPE_CHECKING:
    from holdfast.relay.rules.switchboard import ExecutorSocket, HarnessSocket

log = logging.getLogger(__name__)

PREFIX: Final = "holdfast.relay"  # of subjects
OPEN_S: Final = 5.0  # for the other node to query the store; a harness waits 10 s for its dial
BEAT_S: Final = 1.0
SILENT_S: Final = 6.0  # without a beat for so long a node counts as gone; a client recovers for 25 s
MAX_LINKS: Final = 20_000  # as many as sockets
UNAVAILABLE: Final = "route_unavailable"


class Bus(Protocol):
    """What carries messages: at most once, and in order from one node to another."""

    @property
    def is_up(self) -> bool:
        """Whether messages can be published."""

    def publish(self, subject: str, data: bytes, reply: str = "") -> bool:
        """Queue a message. False: too much is queued already, and it is not sent."""


class Link:
    """One stream between two nodes; its owner uses it like any other socket."""

    __slots__ = (
        "_bridge",
        "_flow",
        "_reading",
        "answer",
        "behind",
        "end",
        "gone",
        "id",
        "owner",
        "peer",
        "stalled_since",
        "to",
    )

    def __init__(self, bridge: "Bridge", id_: bytes, to: bytes, peer: str, now: float) -> None:
        self._bridge = bridge
        self._flow = Flow(now)
        self._reading = True
        self.id = id_
        self.to = to
        self.peer = peer
        self.owner: SocketOwner | None = None
        self.end: ExecutorSocket[Socket] | HarnessSocket[Socket] | None = None
        self.answer: asyncio.Future[Message] | None = None
        self.behind = False
        self.gone = False
        self.stalled_since: float | None = None

    # --- as a socket

    def send(self, frame: bytes) -> None:
        """Pass a frame on. A link that is too far behind is dropped."""
        if self.gone:
            return
        self._post(self._flow.send(frame))
        self._note_flow()
        if self._flow.waiting_bytes > HARD_BYTES:
            self.drop("too far behind")

    @property
    def unsent(self) -> int:
        return self._flow.waiting_bytes

    def set_reading(self, wanted: bool) -> None:
        """Set whether more frames are wanted.

        Frames that arrive are passed on anyway; credit is sent to the other side only while more are wanted.
        """
        self._reading = wanted
        if wanted:
            self._tell_credit(least=1)

    def drop(self, reason: str) -> None:
        """End the link at once; the reason is for the log."""
        if self.gone:
            return
        self.tell(MessageKind.CLOSE)
        self._finish(reason)

    def check(self, now: float) -> None:
        """Drop the link if the other node is silent or behind for too long. Called every few seconds."""
        if self.stalled_since is not None and now - self.stalled_since > STALLED_S:
            self.drop("behind for too long")
        elif now - self._flow.heard > SILENT_S:
            self.drop("the other node is silent")

    # --- as one side of a link

    def accept(self, owner: SocketOwner, token_id: str) -> None:
        """Accept the link: the executor that another node asked for is here."""
        self.owner = owner
        self.tell(MessageKind.ACCEPT, token_id.encode())

    def refuse(self, code: str) -> None:
        self.tell(MessageKind.REFUSE, code.encode())
        self.gone = True
        self._bridge.forget(self)

    @property
    def sent(self) -> int:
        return self._flow.sent

    def tell(self, kind: MessageKind, body: bytes = b"", reply: str = "") -> bool:
        number = self._flow.count()
        return self._bridge.post(self.to, Message(kind, self._bridge.mailbox, self.id, number, body), reply)

    def take(self, message: Message, now: float) -> None:
        """Raises: RemoteProtocolError: the message is invalid and the link must end."""
        if message.kind is MessageKind.CLOSE:
            self._finish("the other node has ended it")
            return
        if not self._flow.expect(message.number, now):
            return
        match message.kind:
            case MessageKind.FRAME if self.owner is not None:
                self._flow.pass_on(len(message.body))
                self.owner.take(self, message.body)
                if self._reading:
                    self._tell_credit()
            case MessageKind.CREDIT:
                self._post(self._flow.credit(crossing.decode_total(message.body)))
                self._note_flow()
            case MessageKind.ACCEPT | MessageKind.REFUSE if (
                self.answer is not None and not self.answer.done()
            ):
                self.answer.set_result(message)
            case MessageKind.OPEN:
                pass
            case _:
                raise RemoteProtocolError("a message that is not due")

    def hear_beat(self, beat: int, sent: int, now: float) -> None:
        """Raises: MessageLost: a message did not arrive."""
        self._flow.hear_beat(beat, sent, now)

    def _post(self, frames: list[bytes]) -> None:
        for frame in frames:
            if not self.tell(MessageKind.FRAME, frame):
                self.drop("too much waits for the bus")
                return

    def _tell_credit(self, least: int = crossing.TOLD_EVERY) -> None:
        total = None if self.gone else self._flow.owed_credit(least=least)
        if total is not None and not self.tell(MessageKind.CREDIT, crossing.encode_total(total)):
            self.drop("too much waits for the bus")

    def _note_flow(self) -> None:
        behind = self._flow.waiting_bytes > 0
        if behind != self.behind and not self.gone:
            self.behind = behind
            self.stalled_since = asyncio.get_running_loop().time() if behind else None
            if self.owner is not None:
                self.owner.note_flow(self)

    def _finish(self, reason: str) -> None:
        self.gone = True
        self._bridge.forget(self)
        log.info("link ended", extra={"peer": self.peer, "reason": reason})
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(Message(MessageKind.REFUSE, self.to, self.id, 0, UNAVAILABLE.encode()))
        if self.owner is not None:  # later, as a socket does: a caller that drops many iterates over them
            asyncio.get_running_loop().call_soon(self.owner.lose, self)


class Bridge:
    """The links of one node. `admit` checks what another node asks for, and accepts or refuses it."""

    def __init__(
        self, bus: Bus, signing_key: bytes, node_id: str, admit: Callable[[Link, Opening], None]
    ) -> None:
        self._bus = bus
        self._key = crossing.derive_key(signing_key)
        self._admit = admit
        self._links: dict[bytes, Link] = {}
        self._beats = 0
        self.mailbox = crossing.mailbox_of(node_id, self._key)
        self.lost = 0  # links that ended because a message did not arrive
        self.foreign = 0  # messages without a valid signature of a node

    def __len__(self) -> int:
        return len(self._links)

    @property
    def subjects(self) -> str:
        """The subjects to subscribe to."""
        return f"{PREFIX}.{self.mailbox.hex()}.*"

    # --- links

    async def dial(self, node_id: str, opening: Opening) -> tuple[Link, str] | str:
        """Open a link to the executor of that node.

        Returns it with the harness's token, or the code of a refusal.
        """
        if not self._bus.is_up or len(self._links) >= MAX_LINKS:
            return UNAVAILABLE
        loop = asyncio.get_running_loop()
        to = crossing.mailbox_of(node_id, self._key)
        link = Link(self, secrets.token_bytes(ID_BYTES), to, opening.peer, loop.time())
        link.answer = loop.create_future()
        self._links[link.id] = link
        try:
            async with asyncio.timeout(OPEN_S):
                link.tell(MessageKind.OPEN, msgspec.msgpack.encode(opening), _subject(self.mailbox, link.id))
                said = await link.answer
        except TimeoutError:
            link.drop("the other node does not answer")
            return UNAVAILABLE
        except BaseException:
            link.drop("nobody waits for it")
            raise
        if said.kind is MessageKind.ACCEPT and not link.gone:
            return link, said.body.decode()
        self._links.pop(link.id, None)
        return said.body.decode() or UNAVAILABLE

    def forget(self, link: Link) -> None:
        self._links.pop(link.id, None)

    def cut(self, reason: str) -> None:
        """End all links, because the bus is not reliable any more."""
        for link in list(self._links.values()):
            link.drop(reason)

    def check(self, now: float) -> None:
        for link in list(self._links.values()):
            link.check(now)

    # --- messages

    def post(self, to: bytes, message: Message, reply: str = "") -> bool:
        return self._bus.publish(_subject(to, message.link), crossing.seal(message, to, self._key), reply)

    def take(self, raw: bytes) -> None:
        """Take a message from the bus."""
        message = crossing.unseal(raw, self.mailbox, self._key)
        if message is None:
            self.foreign += 1
            return
        now = asyncio.get_running_loop().time()
        if message.kind is MessageKind.BEAT:
            self._take_beat(message, now)
            return
        link = self._links.get(message.link)
        if link is None:
            self._take_stray(message, now)
            return
        try:
            link.take(message, now)
        except RemoteProtocolError as exc:
            self._end(link, exc)

    def _end(self, link: Link, why: RemoteProtocolError) -> None:
        if isinstance(why, MessageLost):
            self.lost += 1
            log.warning("the bus has lost a message", extra={"peer": link.peer})
        link.drop(str(why))

    def _take_stray(self, message: Message, now: float) -> None:
        """Take a message of an unknown link: another node opens it, or has not seen its end yet."""
        if message.kind is MessageKind.OPEN and message.number == 0:
            try:
                opening = decoding.decode_msgpack(message.body, Opening)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return  # from a later version
            link = Link(self, message.link, message.sender, opening.peer, now)
            link.take(message, now)
            self._links[link.id] = link
            if len(self._links) > MAX_LINKS:
                link.refuse(UNAVAILABLE)
            else:
                self._admit(link, opening)
        elif message.kind not in (MessageKind.CLOSE, MessageKind.REFUSE):
            self._tell_ended(message.sender, message.link)

    def _tell_ended(self, to: bytes, link: bytes) -> None:
        self.post(to, Message(MessageKind.CLOSE, self.mailbox, link, 0))

    def take_nobody(self, subject: str) -> None:
        """Note that no node listens where a link was to be opened; `subject` is the one for the reply."""
        try:
            link = self._links.get(bytes.fromhex(subject.rpartition(".")[2]))
        except ValueError:
            return
        if link is not None and link.answer is not None and not link.answer.done():
            link.drop("the other node is not on the bus")

    async def keep(self) -> None:
        """Send beats with what was sent, and drop silent links. To be called every BEAT_S."""
        self.check(asyncio.get_running_loop().time())
        self.beat()

    def beat(self) -> None:
        self._beats += 1
        sent: defaultdict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
        for link in self._links.values():
            sent[link.to].append((link.id, link.sent))
        for to, numbers in sent.items():
            for body in crossing.encode_beats(numbers):
                self.post(to, Message(MessageKind.BEAT, self.mailbox, NOBODY, self._beats, body))

    def _take_beat(self, message: Message, now: float) -> None:
        for id_, sent in crossing.decode_beats(message.body):
            link = self._links.get(id_)
            if link is None:
                self._tell_ended(message.sender, id_)
                continue
            try:
                link.hear_beat(message.number, sent, now)
            except MessageLost as exc:
                self._end(link, exc)


class Joint:
    """A harness's socket and the link that carries its stream; each is the other's counterpart."""

    def __init__(self, socket: Socket, link: Link, token_id: str, on_end: Callable[["Joint"], None]) -> None:
        self.socket = socket
        self.link = link
        self.token_id = token_id
        self._on_end = on_end
        link.owner = self

    def _other(self, one: Socket) -> Socket:
        return self.socket if one is self.link else self.link

    def take(self, one: Socket, frame: bytes) -> None:
        self._other(one).send(frame)

    def note_flow(self, one: Socket) -> None:
        self._other(one).set_reading(not one.behind)

    def lose(self, one: Socket) -> None:
        self._other(one).drop("the other end is gone")
        self._on_end(self)


def _subject(to: bytes, link: bytes) -> str:
    return f"{PREFIX}.{to.hex()}.{link.hex()}"
