"""Hosts reached by name: the name server of one command, and the relay for its connections.

The command resolves a name and gets an address in its own network namespace, on which we listen. All other
names get NXDOMAIN. The address of a connection identifies the host. We resolve and dial it here (`dial.py`),
once the client's data agrees with that name (`namecheck.py`), and count the traffic (`traffic.py`).
"""

import asyncio
import contextlib
import errno
import functools
import ipaddress
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final

from holdfast.egress import names
from holdfast.egress.addresses import Address
from holdfast.egress.asking.asker import Ask, Asker, ask_nobody
from holdfast.egress.asking.questions import ASKED_PORTS, NotAllowed, explain_rule
from holdfast.egress.bounds.requested import grant_request, refuse_request
from holdfast.egress.dial import AddressDenied, Dialer, LookupFailed, NotPublic
from holdfast.egress.hosts import (
    BadHost,
    Extent,
    Host,
    HostRules,
    decide,
    find_denial,
    may_be_private,
    parse_host,
)
from holdfast.egress.inside import InsideSockets, read_attempt
from holdfast.egress.joint import CheckedJoint
from holdfast.egress.namecheck import NameCheck, Refused
from holdfast.egress.names import BadMessage, NameTable, Question
from holdfast.egress.requests import Judge
from holdfast.egress.splice import CHUNK_BYTES, Hold, reset, take_leave
from holdfast.egress.traffic import Sent, Traffic, grant_of
from holdfast.sandbox.kernel.sockowner import Kind

if TYPE_CHECKING:  # imports that few commands need
    from holdfast.egress.bounds.allowance import Allowance
    from holdfast.egress.keys.inspector import Inspector

MAX_CONNECTIONS: Final = 256  # of one command; further ones wait in the accept queue
MAX_UNDECIDED: Final = 256  # names with an address that no rule allows, but that the user may be asked about
MAX_LATE: Final = 128  # ports opened on a connection attempt, beside those open from the start
LATE_S: Final = 5.0  # the program retries within two seconds; after this no retry is expected
MAX_STREAMS: Final = 16  # TCP connections to the name server, meant for long answers, which we never send
STREAM_S: Final = 10.0  # after which a silent one of those is closed
FIRST_S: Final = 1.0  # how long a refused client may take to send data that shows its protocol
DRAIN_S: Final = 2.0  # for data that a command sent right before its end
RETRY_S: Final = 0.1  # until accept is tried again after the descriptors ran out
_BATCH: Final = 64  # questions that are answered before other callbacks have a turn
_MAX_PACKET: Final = 128  # headers
_OWN: Final = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))


class NameBroker:
    """Serves one command, on the running loop, from `open` to `aclose`.

    `has_room` tells whether this many more descriptors may be opened: a command that asks for a thousand
    names must not take them from others. `inspector` has the keys for some of these hosts, and reads the
    requests to them. If `ask_s` is set, `ask` is called about hosts that no rule decides about, when a
    program connects to one. `traffic` is the account that it keeps.
    """

    def __init__(
        self,
        rules: HostRules,
        inside: InsideSockets,
        dialer: Dialer,
        has_room: Callable[[int], bool],
        inspector: "Inspector | None" = None,
        traffic: Traffic | None = None,
        *,
        ask: Ask = ask_nobody,
        ask_s: float = 0.0,
    ) -> None:
        self.traffic = traffic or Traffic()
        self.allowance: Allowance | None = None  # limits on what passes, if there are any
        self._has_room, self._inspector = has_room, inspector
        self._asker, self._inside, self._dialer = Asker(rules, ask, ask_s), inside, dialer
        named = {port for rule in rules.allow for port in rule.ports or ()}
        self._ports = sorted(named | (ASKED_PORTS if self._asker.book.asks else frozenset()))
        self._table = NameTable()
        self._undecided = 0
        self._listeners: dict[socket.socket, tuple[Host, int]] = {}
        self._listening: set[tuple[str, int]] = set()
        self._late: dict[tuple[str, int], asyncio.TimerHandle] = {}  # opened after a connection attempt
        self._connections: set[asyncio.Task[None]] = set()
        self._streams: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._accepting = self._ended = False
        self._then: Callable[[], object] = lambda: None

    @property
    def descriptors(self) -> int:
        """How many descriptors it has open, or will have once its connections are made."""
        return len(self._listeners) + 2 * len(self._connections) + len(self._streams)

    @property
    def services(self) -> "dict[int, Callable[[socket.socket], Coroutine[None, None, None]]]":
        """Handlers of connections to allowed ports of this machine's loopback, by port.

        Those are not reached by a name lookup. The process that created their listeners passes each
        connection to us.
        """
        found: dict[int, Callable[[socket.socket], Coroutine[None, None, None]]] = {}
        for rule in self._rules.allow:
            if rule.extent is not Extent.EXACT:
                continue
            host = parse_host(rule.name)
            if host.name == "localhost" or host.address in _OWN:
                for port in rule.ports or ():
                    found.setdefault(port, functools.partial(self._serve, host=host, port=port))
        return found

    # --- life cycle

    def open(self) -> None:
        """Start answering and accepting."""
        for sock, take in (
            (self._inside.datagrams, self._on_datagrams),
            (self._inside.stream, self._on_stream),
            (self._inside.attempts, self._on_attempts),
        ):
            sock.setblocking(False)
            self._loop.add_reader(sock, take)
        self._accepting = True

    def end(self, then: Callable[[], object] = lambda: None) -> None:
        """The command has ended: accept nothing more, and give the data that it sent a moment to arrive.

        `then` is called once all connections are closed.
        """
        if self._ended:
            return
        self._then = then
        self._pause()
        self._ended = True
        for (name, port), late in self._late.items():
            if not late.cancelled() and late.when() > self._loop.time():
                late.cancel()
                self._refuse_port(name, port)
        for sock in (self._inside.datagrams, self._inside.stream, self._inside.attempts):
            self._loop.remove_reader(sock)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._inside.close()
        for stream in self._streams:
            stream.cancel()
        self._asker.close()
        if self._connections:
            self._loop.call_later(DRAIN_S, self._cut)
        else:
            then()

    async def aclose(self) -> None:
        """End, and wait until all connections are closed."""
        self.end()
        if waited := self._connections | self._streams:
            await asyncio.wait(waited)

    def _cut(self) -> None:
        for connection in self._connections:
            connection.cancel()

    # --- names

    def _on_datagrams(self) -> None:
        for _ in range(_BATCH):
            try:
                message, sender = self._inside.datagrams.recvfrom(names.MAX_QUESTION)
                if (told := self._answer(message, "udp", sender[1])) is not None:
                    self._inside.datagrams.sendto(told, sender)
            except BlockingIOError:
                return
            except OSError:
                continue  # the client is gone

    def _on_stream(self) -> None:
        try:
            sock, _ = self._inside.stream.accept()
        except OSError:
            return
        if len(self._streams) >= MAX_STREAMS or not self._has_room(1):
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._serve_stream(sock))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _serve_stream(self, sock: socket.socket) -> None:
        """Answer questions over TCP, each with its length first, one after the other."""
        with sock, contextlib.suppress(OSError, TimeoutError):
            port: int = sock.getpeername()[1]
            while True:
                async with asyncio.timeout(STREAM_S):
                    length = int.from_bytes(await self._receive(sock, 2))
                    if not 0 < length <= names.MAX_QUESTION:
                        return
                    told = self._answer(await self._receive(sock, length), "tcp", port)
                    if told is not None:
                        await self._loop.sock_sendall(sock, len(told).to_bytes(2) + told)

    async def _receive(self, sock: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (some := await self._loop.sock_recv(sock, count - len(data))):
                raise ConnectionResetError
            data += some
        return data

    def _answer(self, message: bytes, kind: Kind, port: int) -> bytes | None:
        """The answer to a message from this port; None: send none."""
        try:
            question = names.read_question(message)
        except BadMessage as exc:
            return exc.answer
        if question.name is None:
            return names.refuse(question)
        if question.name == "localhost" or question.name.endswith(".localhost"):
            return names.answer(question, _OWN)
        try:
            host = parse_host(question.name)
        except BadHost:
            return names.refuse(question)
        ports = self._asker.book.find_ports(host, self._ports)
        if host.address is not None or not ports:
            self._refuse_name(question, host, kind, port)
            return names.refuse(question)
        if not self._is_known(host, ports):
            if not question.about_host or self._undecided >= MAX_UNDECIDED:
                self._refuse_name(question, host, kind, port)
                return names.refuse(question)
            if not question.wants_address:
                return names.answer(question, ())  # the host may have an address, but no other records
            self._undecided += 1
        try:
            addresses = self._open_host(host, ports)
        except OSError:
            addresses = None  # for example, no descriptors are left
        if addresses is None:
            return names.refuse(question, names.Rcode.SERVER_FAILURE)
        return names.answer(question, addresses)

    @property
    def _rules(self) -> HostRules:
        return self._asker.rules

    def _is_known(self, host: Host, ports: list[int]) -> bool:
        """Whether a name has its address already, or a rule allows it."""
        allowed = (decide(self._rules, host, port).allowed for port in ports)
        return self._table.find(host.name) is not None or any(allowed)

    def _refuse_name(self, question: Question, host: Host, kind: Kind, port: int) -> None:
        if not question.about_host:
            return
        denied = next((rule for rule in self._rules.deny if rule.name and rule.covers(host, 443)), None)
        why, grant = explain_rule(denied), grant_of(host.name, None) if denied is None else None
        known = self.traffic.has_refused(host.name, None, why)
        program = None if known else self._inside.find_program(kind, port)
        self.traffic.refuse(host.name, None, why, _now_ms(), grant=grant, program=program)

    def _open_host(self, host: Host, ports: list[int]) -> tuple[Address, ...] | None:
        """The addresses of a host, with a listener at every port at which it may be reached.

        None: there is no room for another host. Raises OSError.
        """
        known = self._table.find(host.name)
        if known is None and not self._has_room(len(self._inside.families) * len(ports)):
            return None
        found = known or self._table.give(host.name)
        if found is None:
            return None
        v4, v6 = found
        addresses = (v4, v6) if socket.AF_INET6 in self._inside.families else (v4,)
        if known is None:
            for address in addresses:
                for port in ports:
                    self._listen(host, address, port)
        return addresses

    def _listen(self, host: Host, address: Address, port: int) -> None:
        try:
            listener = self._inside.listen(address, port)
        except OSError as exc:
            why = (
                f"nobody can listen for it: {exc.strerror}"  # a server inside has that port at every address
            )
            self.traffic.refuse(host.name, port, why, _now_ms(), grant=None)
            return
        self._listeners[listener] = (host, port)
        self._listening.add((host.name, port))
        if self._accepting:
            self._loop.add_reader(listener, self._accept, listener)

    # --- connections

    def _on_attempts(self) -> None:
        """Handle connection attempts: without a listener the kernel refuses them, and we record why."""
        for _ in range(_BATCH):
            try:
                tried = read_attempt(self._inside.attempts.recv(_MAX_PACKET))
            except OSError:
                return  # no more packets, or the queue overflowed
            name = None if tried is None else self._table.name_at(tried[0])
            if tried is None or name is None or (name, tried[1]) in self._listening:
                continue
            if not self._listen_late(name, tried[1]):
                self._refuse_port(name, tried[1])

    def _listen_late(self, name: str, port: int) -> bool:
        """Listen on a port where a connection was attempted that the user may be asked about, for the retry.

        The broker of the command's sockets (`sandbox/watcher/broker.py`) retries, if the command has one.
        Otherwise no retry comes, and the refusal is recorded after LATE_S. False: no question is possible, or
        too many ports were tried.
        """
        host, known = parse_host(name), self._table.find(name)
        count = len(self._inside.families)
        if known is None or not self._asker.book.asks or not self._asker.book.find_ports(host, [port]):
            return False
        if len(self._late) >= MAX_LATE or not self._has_room(count):
            return False
        self._late[name, port] = self._loop.call_later(LATE_S, self._refuse_port, name, port)
        for address in known[:count]:
            self._listen(host, address, port)
        return True

    def _refuse_port(self, name: str, port: int) -> None:
        """Record a connection that the kernel refused because there was no listener."""
        rule = decide(self._rules, parse_host(name), port).rule
        grant = grant_of(name, port) if rule is None else None
        self.traffic.refuse(name, port, "no rule allows this port", _now_ms(), grant=grant)

    def _resume(self) -> None:
        if not self._accepting and not self._ended:
            self._accepting = True
            for listener in self._listeners:
                self._loop.add_reader(listener, self._accept, listener)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            for listener in self._listeners:
                self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        if len(self._connections) >= MAX_CONNECTIONS or not self._has_room(2):
            self._pause()
            self._loop.call_later(RETRY_S, self._resume)  # other connections may end
            return
        try:
            inner, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors or memory left; the connection stays in the queue
            self._pause()
            self._loop.call_later(RETRY_S, self._resume)
            return
        inner.setblocking(False)
        host, port = self._listeners[listener]
        if (late := self._late.get((host.name, port))) is not None:
            late.cancel()  # the program retried
        connection = self._loop.create_task(self._serve(inner, host, port))
        self._connections.add(connection)
        connection.add_done_callback(self._on_closed)

    def _on_closed(self, connection: "asyncio.Task[None]") -> None:
        self._connections.discard(connection)
        self._resume()
        if self._ended and not self._connections:
            self._then()

    async def _serve(self, inner: socket.socket, host: Host, port: int) -> None:
        """Join a connection from inside to its host, until both directions have ended."""
        with inner:
            try:
                await self._asker.admit(host, port, lambda: self._find_program(inner))
            except NotAllowed as exc:
                self._refuse(inner, host, port, str(exc), grant_of(host.name, port))
                await self._tell(inner, NameCheck(host.name, port), str(exc))
                return
            row = self.traffic.connect(host.name, port, _now_ms())
            if not await self._may_begin(inner, host, port, row):
                return
            inspector = self._inspector
            if inspector is not None and inspector.covers(host.name, port):
                await self._inspect(inspector, inner, host, port, row)
            else:
                await self._pass(inner, host, port, row)

    def _find_program(self, inner: socket.socket) -> str | None:
        """The program that made this connection."""
        try:
            port: int = inner.getpeername()[1]
        except OSError:
            return None  # it is gone
        return self._inside.find_program("tcp", port)

    def _refuse(
        self, inner: socket.socket, host: Host, port: int, why: str, grant: str | None = None
    ) -> None:
        """Count a refused connection; look up its program only the first time."""
        known = self.traffic.has_refused(host.name, port, why)
        program = None if known else self._find_program(inner)
        self.traffic.refuse(host.name, port, why, _now_ms(), grant=grant, program=program)

    async def _pass(self, inner: socket.socket, host: Host, port: int, row: Sent) -> None:
        """Pass on the bytes of a connection, until it ends."""
        check = NameCheck(host.name, port, judge=self._judge_of(host, port))
        try:
            outer = await self._dial(host, port)
        except (OSError, BadHost) as exc:
            await self._tell(inner, check, self._explain(exc, inner, host, port, row))
            return
        with outer:
            try:
                await self._join(inner, outer, check, row, self._hold(host, port, row))
            except Refused as exc:
                self._refuse(inner, host, port, exc.why, self._grant_request("http", host, port, exc.asked))
                await self._send_refusal(inner, exc)
            finally:
                row.last_ms = _now_ms()

    def _judge_of(self, host: Host, port: int) -> Judge | None:
        """The function that judges plain HTTP requests to a host; None if every request is allowed."""
        found = self._rules.find_requests(host, port)
        allowed = [rule for rule in found if rule.scheme == "http"]
        return functools.partial(refuse_request, allowed) if found else None

    def _grant_request(
        self, scheme: str, host: Host, port: int, asked: tuple[bytes, bytes] | None
    ) -> str | None:
        return None if asked is None else grant_request(scheme, host.name, port, *asked)

    async def _may_begin(self, inner: socket.socket, host: Host, port: int, row: Sent) -> bool:
        """Wait until another connection may begin; if a limit forbids it, refuse it and return False."""
        if self.allowance is None:
            return True
        try:
            await self._wait(self.allowance.connect(host, port, self._loop.time()), row)
        except OSError as exc:
            why = exc.strerror or str(exc)
            self._refuse(inner, host, port, why)
            await self._tell(inner, NameCheck(host.name, port), why)
            return False
        return True

    def _hold(self, host: Host, port: int, row: Sent) -> Hold | None:
        """The function that delays bytes as limits demand; None if no limit applies."""
        allowance = self.allowance
        if allowance is None or not allowance.bounds(host, port):
            return None

        async def hold(amount: int) -> None:
            try:
                wait_s = allowance.take(host, port, amount, self._loop.time())
            except OSError as exc:
                self.traffic.refuse(host.name, port, exc.strerror or str(exc), _now_ms(), grant=None)
                raise
            await self._wait(wait_s, row)

        return hold

    async def _wait(self, wait_s: float, row: Sent) -> None:
        if wait_s > 0:
            row.slowed_ms += round(wait_s * 1000)
            await asyncio.sleep(wait_s)

    async def _inspect(
        self, inspector: "Inspector", inner: socket.socket, host: Host, port: int, row: Sent
    ) -> None:
        """Read and answer the requests of a connection, until it ends."""

        def refuse(why: str, asked: tuple[bytes, bytes] | None) -> None:
            self._refuse(inner, host, port, why, self._grant_request("https", host, port, asked))

        dialled = 0

        async def dial() -> socket.socket:
            nonlocal dialled
            try:
                if dialled and self.allowance is not None:  # the first connection was counted before
                    await self._wait(self.allowance.connect(host, port, self._loop.time()), row)
                row.connections += dialled > 0
                dialled += 1
                return await self._dial(host, port)
            except (OSError, BadHost) as exc:
                raise OSError(errno.EHOSTUNREACH, self._explain(exc, inner, host, port, row)) from None

        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # keep the pieces that the host sends
        try:
            target = (host.name, port)
            first = await inspector.hear_hello(inner, target) if inspector.ends_tls(*target) else b""
            hold = self._hold(host, port, row)
            await inspector.serve(inner, first, target, dial, refuse, row, hold)
        except Refused as exc:
            refuse(exc.why, None)
            await self._send_refusal(inner, exc)
        except OSError:
            reset(inner)
        finally:
            row.last_ms = _now_ms()

    def _explain(self, exc: OSError | BadHost, inner: socket.socket, host: Host, port: int, row: Sent) -> str:
        """Why a host cannot be reached; count the failure."""
        row.failed += 1
        if isinstance(exc, AddressDenied):
            why = f"{host} is at {exc.address}, which --deny-host {exc.rule} denies"
            self._refuse(inner, host, port, why)
            return why
        if not isinstance(exc, NotPublic):
            return f"{host} cannot be reached: {exc.strerror if isinstance(exc, OSError) else exc}"
        why = f"{host} is at {exc.address}, which is not public"
        self._refuse(inner, host, port, why, "--allow-private")
        return why

    async def _dial(self, host: Host, port: int) -> socket.socket:
        """Raises OSError."""
        decision = decide(self._rules, host, port)
        if not decision.allowed:
            raise LookupFailed(1, "no rule allows it any more")
        private = may_be_private(self._rules, host, decision)
        denial = functools.partial(find_denial, self._rules, port)
        return await self._dialer.dial(host, port, private=private, find_denial=denial)

    async def _join(
        self, inner: socket.socket, outer: socket.socket, check: NameCheck, row: Sent, hold: Hold | None
    ) -> None:
        """Pass bytes and ends of file both ways. Raises Refused; closes neither socket."""
        lookout = None if self._inspector is None else self._inspector.look_out()
        joint = CheckedJoint(inner, outer, check, row, lookout, hold)
        whole, refused = False, None
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(joint.pass_out())
                pumps.create_task(joint.pass_in())
            whole = True
        except* Refused as group:
            refused = _first(group)
        except* OSError:
            pass  # one side broke off, and the other gets a reset too
        finally:
            if not whole:
                reset(outer)
                if refused is None:
                    reset(inner)
        if refused is not None:
            # In the middle of an exchange the client would not understand an answer of ours.
            raise Refused(refused.why) if joint.passed else refused

    async def _tell(self, inner: socket.socket, check: NameCheck, why: str) -> None:
        """Refuse a connection in a protocol that its client understands, after its first data."""
        refusal = Refused(why)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FIRST_S):
                try:
                    check.feed(await self._loop.sock_recv(inner, CHUNK_BYTES) or b"\0")
                    refusal = check.refusal(why)
                except Refused as exc:
                    refusal = Refused(why, exc.answer)
        await self._send_refusal(inner, refusal)

    async def _send_refusal(self, inner: socket.socket, refusal: Refused) -> None:
        if not refusal.answer:
            reset(inner)
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._loop.sock_sendall(inner, refusal.answer)
            await take_leave(inner)


def _first(group: BaseExceptionGroup[Refused]) -> Refused:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, Refused) else Refused("it was refused")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
