"""The process that serves the host names of one command of `holdfast exec`, and our end of it.

It is a fork of ours, made when the command asks for its first name or has run for a moment. The sockets
exist before that, so no question is lost, and the start of a command does not wait for the fork. The process
ends with us. When the command has ended it reports the traffic. The server does the same on its own loop,
with the same broker (`launch.py`).

A command that may write where Python loads modules from could change this process's code. In that case the
process loads everything it needs before the command runs. It does the same for keys that stay outside, which
need more than the standard library: no module is searched for while a command runs.

If the policy says that a person is asked (`ask_s`), the process sends each question as a line, and receives
the answer as a line.
"""

import os
import select

from holdfast.errors import SandboxUnavailable
from holdfast.light import TYPE_CHECKING, Any, Callable, Final, NoReturn, Protocol, Sequence, signal, suppress
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.policy.hostwish import are_plain

if TYPE_CHECKING:
    import _socket
    import asyncio
    from collections.abc import Mapping

    from holdfast.confine.keys import KeptKeys
    from holdfast.confine.loopback import Service
    from holdfast.egress.asking.asker import Ask
    from holdfast.egress.asking.questions import Answer, HostQuestion
    from holdfast.egress.broker import NameBroker
    from holdfast.egress.dial import Dialer
    from holdfast.egress.hosts import HostRules
    from holdfast.egress.keys.inspector import Inspector
    from holdfast.egress.traffic import Traffic
    from holdfast.local.loop import AnyLoop
    from holdfast.sandbox.policy.hostwish import HostWish

READY_S: Final = 20.0  # time to load a few modules on a machine under load
STOP_S: Final = 5.0  # what the command sent arrives, or is cut off
MAX_REPORT: Final = 4 * 1024 * 1024  # rows of a thousand hosts, with their names
_WANTED: Final = 16 * 1024  # descriptors of the process of one command
_SHARE: Final = 0.5  # of the descriptors that a process may have: the rest is for everything else
_OWN_SHARE: Final = 0.75  # of what a server's other commands leave, so that the next has some too
_SOON_S: Final = 0.005  # most commands end earlier, or ask after everything needed for an answer was loaded
LOAD, SERVE = b"l", b"s"  # messages to the process
READY: Final = b"ready\n"  # message from it
ASKS, WITHDRAWS = b"?", b"-"  # first byte of its lines while it serves, except the report
_MAX_ANSWER: Final = 4096  # bytes of answers that are read at once


class Answerer(Protocol):
    """Answers questions about hosts: `ask` takes a question, and calls `answer` once, with the answer.

    A question has the fields of `egress.asking.questions.HostQuestion`.
    """

    def ask(self, question: "dict[str, Any]", answer: "Callable[[str], None]") -> None: ...

    def withdraw(self, id_: int) -> None: ...


class NamesProcess:
    """The process, from the check of its hosts to its report at the end; it need not exist in between."""

    def __init__(self, hosts: "HostWish", keys: "KeptKeys | None" = None) -> None:
        """With keys that stay outside, the certificate file exists once the process is ready."""
        self._hosts, self._keys = hosts, keys
        self._sock: _socket.socket | None = None
        self._pid = 0
        self._said = b""
        self._held: tuple[int, ...] = ()  # the sockets of a command that has asked nothing so far
        self._asked: tuple[int, ...] = ()  # those of them on which the command asks or connects
        self._loop: AnyLoop | None = None
        self._serving = self._ready = False
        self._answerer: Answerer | None = None

    def check(self) -> None:
        """Check the rules about hosts. The parser is not loaded if all of them are plain host names.

        Raises:
            UsageError: a rule is invalid.
        """
        if not are_plain(self._hosts):
            read_rules(self._hosts)

    def load(self) -> None:
        """Fork the process now, and let it load all that it needs. Raises OSError."""
        if self._sock is None:
            self._fork().send(LOAD)

    def wait_ready(self) -> None:
        """Wait until the process has loaded everything; it loads nothing more from now on.

        Raises:
            SandboxUnavailable: the process does not come up.
            OSError: it cannot be forked.
        """
        self.load()
        self._wait_for(READY)

    def serve(self, fds: Sequence[int], loop: "AnyLoop", answerer: Answerer | None = None) -> None:
        """Serve the command's sockets, which stay the caller's, after its first use of one or a moment.

        They are the sockets for names, and those of loopback ports. `answerer` answers the process's
        questions.
        """
        from holdfast.sandbox.protocol.names import QUESTIONS, count_handed

        self._held, self._loop, self._answerer = tuple(map(os.dup, fds)), loop, answerer
        self._asked = (*self._held[:QUESTIONS], *self._held[count_handed(fds) :])
        self._serving = True
        for fd in self._asked:
            loop.add_reader(fd, self._begin)
        loop.call_later(_SOON_S, self._begin)

    def _begin(self) -> None:
        """The command asks, or is about to: hand the sockets to the process that answers."""
        if not self._held:
            return
        import _socket as socket
        import struct

        fds = struct.pack(f"{len(self._held)}i", *self._held)
        try:
            sock = self._fork() if self._sock is None else self._sock
            sock.sendmsg([SERVE], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            if self._answerer is not None and self._loop is not None:
                self._loop.add_reader(sock.fileno(), self._hear_questions, sock, self._answerer)
        except OSError:
            self._serving = False  # no process answers then, and the traffic is unknown
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for fd in self._asked:
            if self._loop is not None:
                self._loop.remove_reader(fd)
        for fd in self._held:
            os.close(fd)
        self._held = self._asked = ()

    def _fork(self) -> "_socket.socket":
        """Raises OSError."""
        import _socket as socket

        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _be(parent, theirs, self._hosts, self._keys)
        finally:
            theirs.close()
        return self._sock

    def _hear_questions(self, sock: "_socket.socket", answerer: Answerer) -> None:
        try:
            heard = self._receive(0)
        except OSError:
            heard = False
        if not heard and self._loop is not None:
            self._loop.remove_reader(sock.fileno())
        while b"\n" in self._said:
            line, _, self._said = self._said.partition(b"\n")
            if line + b"\n" == READY:
                self._ready = True
            elif line.startswith(ASKS):
                self._ask(sock, line[1:], answerer)
            elif line.startswith(WITHDRAWS):
                answerer.withdraw(int(line[1:]))

    def _ask(self, sock: "_socket.socket", line: bytes, answerer: Answerer) -> None:
        import json

        question = json.loads(line)

        def answer(text: str) -> None:
            with suppress(OSError):  # it is gone, and the answer is not needed
                sock.send(f"{question['id']} {text}\n".encode())

        answerer.ask(question, answer)

    def end(self) -> dict[str, Any] | None:
        """After the command's end: let what it sent arrive; return the traffic, None if unknown.

        The process is gone on return: while it exists, the search for the command's remaining processes
        takes long.
        """
        asked = not self._held
        self._let_go()
        if self._sock is not None and self._loop is not None:
            self._loop.remove_reader(self._sock.fileno())
        try:
            return self._hear_out() if asked else _nothing()
        finally:
            if self._sock is not None:
                self._sock.close()
            if self._pid:
                with suppress(ProcessLookupError, ChildProcessError):  # it was reaped with other children
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)

    def _hear_out(self) -> dict[str, Any] | None:
        import _socket as socket

        if not self._serving or self._sock is None:
            return None
        if not self._is_ready():
            return _nothing()  # the command ended before any answer was sent
        try:
            self._sock.shutdown(socket.SHUT_WR)
            while self._receive(STOP_S):
                pass
        except OSError:
            return None  # it is late, or gone
        import json

        told = self._said.rpartition(b"\n")[2]
        try:
            return json.loads(told) if told else None
        except ValueError:
            return None

    def _is_ready(self) -> bool:
        while not self._ready and READY not in self._said:
            try:
                if not self._receive(0):
                    return True  # it is gone, which is noticed elsewhere
            except TimeoutError:
                return False
            except OSError:
                return True
        return True

    def _wait_for(self, word: bytes) -> None:
        while word not in self._said:
            try:
                if self._receive(READY_S):
                    continue
            except OSError:
                pass
            raise SandboxUnavailable("the process that serves the names of hosts did not come up")

    def _receive(self, timeout_s: float) -> bool:
        """Read more; return False at the end of the stream. Raises OSError."""
        if self._sock is None:
            return False
        asked = select.poll()
        asked.register(self._sock.fileno(), select.POLLIN)
        if not asked.poll(timeout_s * 1000) or len(self._said) > MAX_REPORT:
            raise TimeoutError
        data: bytes = self._sock.recv(64 * 1024)
        self._said += data
        return bool(data)


def _nothing() -> dict[str, Any]:
    """The report on a command that asked for no name (`egress/traffic.py`)."""
    return {"sent": [], "refused": [], "dropped": 0}


def _be(parent: int, told: "_socket.socket", hosts: "HostWish", keys: "KeptKeys | None") -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        end_with_parent(keys)
        kernel.close_others({told.fileno()})  # if we held a pipe of the command, it would never end
        if os.getppid() == parent:
            serve(told, hosts, keys)
            code = 0
    finally:
        os._exit(code)


def end_with_parent(keys: "KeptKeys | None") -> None:
    """End when our parent does, even if it is killed; the files made for these keys are removed then."""
    if keys is None:
        kernel.die_with_parent(signal.SIGKILL)
        return

    def end(*_: object) -> NoReturn:
        keys.forget()
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    kernel.die_with_parent(signal.SIGTERM)


def serve(told: "_socket.socket", hosts: "HostWish", keys: "KeptKeys | None") -> None:
    """Follow the parent's orders until it reports the command's end or is gone; then remove keys' files."""
    try:
        _serve(told, hosts, keys)
    finally:
        if keys is not None:
            keys.forget()


def _serve(told: "_socket.socket", hosts: "HostWish", keys: "KeptKeys | None") -> None:
    """Load everything; on SERVE also serve the sockets that came with it."""
    import contextlib

    from holdfast.sandbox.protocol import orders
    from holdfast.sandbox.protocol.loopback import MAX_LISTENERS

    inspector = None
    while True:
        word, fds = orders.receive_with_fds(told, 1, MAX_LISTENERS)
        if word not in (LOAD, SERVE):
            return
        import asyncio
        import json
        from functools import partial

        from holdfast.sandbox.protocol.names import count_handed

        rules = read_rules(hosts)
        make_broker(rules, hosts, None)
        if keys is not None and inspector is None:
            inspector = keys.make_inspector(rules.requested)
            kernel.forbid_inspection()  # a process that can read our memory has the keys
        most = _SHARE * _raise_limit()
        told.send(READY)
        if word == SERVE:
            count = count_handed(fds)
            make = partial(make_broker, rules, hosts, fds[:count], inspector=inspector)
            report = asyncio.run(_serve_until_told(told, make, most, fds[count:]))
            told.setblocking(True)
            with contextlib.suppress(OSError):  # our parent was killed
                told.sendall(json.dumps(report).encode())
            return


async def _serve_until_told(
    told: "_socket.socket", make: "Callable[..., NameBroker | None]", most: float, ports: Sequence[int]
) -> dict[str, object]:
    import asyncio

    questions = _Questions(told)
    broker: NameBroker | None = make(
        has_room=lambda count: broker is None or broker.descriptors + count <= most, ask=questions.ask
    )
    if broker is None:
        raise AssertionError("it has its sockets")
    broker.open()
    loopback = None
    if ports:
        from holdfast.confine.loopback import Loopback

        loopback = Loopback()
        loopback.open(0, ports, broker.services)
    ended = asyncio.Event()
    told.setblocking(False)
    asyncio.get_running_loop().add_reader(told.fileno(), questions.hear, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(told.fileno())
    if loopback is not None:
        await loopback.aclose()
    await broker.aclose()
    return broker.traffic.report()


class _Questions:
    """Questions to our parent process, and its answers."""

    def __init__(self, told: "_socket.socket") -> None:
        self._told = told
        self._heard = b""
        self._open: dict[int, asyncio.Future[Answer]] = {}

    async def ask(self, question: "HostQuestion") -> "Answer":
        """Raises OSError."""
        import asyncio
        import json
        from dataclasses import asdict

        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[question.id] = answer
        try:
            self._told.send(ASKS + json.dumps(asdict(question)).encode() + b"\n")
            return await answer
        finally:
            del self._open[question.id]
            if not answer.done() or answer.cancelled():
                with suppress(OSError):
                    self._told.send(WITHDRAWS + f"{question.id}\n".encode())

    def hear(self, end: Callable[[], object]) -> None:
        from holdfast.egress.asking.questions import Answer

        try:
            data = self._told.recv(_MAX_ANSWER)
        except OSError:
            data = b""  # it died before it had read all that we sent
        if not data:
            end()
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            number, _, text = line.decode().partition(" ")
            waiting = self._open.get(int(number))
            if waiting is not None and not waiting.done():
                waiting.set_result(Answer(text))


class NameBrokers:
    """The name brokers of all commands of a server, by the command's number; on the running loop."""

    def __init__(self) -> None:
        import resource

        self._brokers: dict[int, NameBroker] = {}
        self._most = _SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def _has_room(self, id_: int, count: int) -> bool:
        held = {number: broker.descriptors for number, broker in self._brokers.items()}
        own = held.pop(id_, 0)
        return own + count <= _OWN_SHARE * (self._most - sum(held.values()))

    def open(
        self,
        id_: int,
        hosts: "HostWish",
        fds: Sequence[int],
        traffic: "Traffic | None" = None,
        ask: "Ask | None" = None,
    ) -> list[int]:
        """Serve this command on its sockets for names; return the remaining descriptors.

        Traffic is counted in `traffic`. `ask` is called about hosts, if the command's policy says that a
        person is asked.
        """
        from functools import partial

        from holdfast.sandbox.protocol.names import count_handed

        count, has_room = count_handed(fds), partial(self._has_room, id_)
        broker = make_broker(read_rules(hosts), hosts, fds[:count], has_room, traffic=traffic, ask=ask)
        if broker is not None:
            broker.open()
            self._brokers[id_] = broker
        return list(fds[count:])

    def services(self, id_: int) -> "Mapping[int, Service]":
        """The services at those ports of this machine's loopback that this command was allowed."""
        broker = self._brokers.get(id_)
        return {} if broker is None else broker.services

    def end(self, id_: int) -> dict[str, Any] | None:
        """After the command's end: return its traffic, or None if it had no names."""
        broker = self._brokers.get(id_)
        if broker is None:
            return None
        broker.end(lambda: self._brokers.pop(id_, None))
        return broker.traffic.report()

    async def aclose(self) -> None:
        """End all and wait until nothing is open."""
        for broker in list(self._brokers.values()):
            await broker.aclose()


def read_rules(hosts: "HostWish") -> "HostRules":
    """The rules of these hosts.

    Raises:
        UsageError: a rule is invalid.
    """
    from holdfast.egress.hosts import check_addresses, forget_keys, parse_rules

    if hosts.limits:
        from holdfast.egress.bounds.allowance import parse_limits

        parse_limits(hosts.limits)
    check_addresses(hosts.addresses)
    allow = forget_keys(hosts).allow
    return parse_rules(allow, hosts.deny, private=hosts.private, own=hosts.own)


def make_broker(
    rules: "HostRules",
    hosts: "HostWish",
    fds: Sequence[int] | None,
    has_room: Callable[[int], bool] = lambda _: True,
    inspector: "Inspector | None" = None,
    traffic: "Traffic | None" = None,
    ask: "Ask | None" = None,
) -> "NameBroker | None":
    """Make a broker for these sockets, which it takes over; with `fds` None only load what a broker needs."""
    from holdfast.egress.asking.asker import ask_nobody
    from holdfast.egress.broker import NameBroker
    from holdfast.egress.inside import InsideSockets

    dialer = make_dialer(hosts)
    if fds is None:
        return None
    inside, answers = InsideSockets(fds), ask_nobody if ask is None else ask
    broker = NameBroker(
        *(rules, inside, dialer, has_room, inspector, traffic), ask=answers, ask_s=hosts.ask_s
    )
    if hosts.limits:
        from holdfast.egress.bounds.allowance import Allowance, parse_limits

        broker.allowance = Allowance(parse_limits(hosts.limits))
    return broker


def make_dialer(hosts: "HostWish") -> "Dialer":
    """Make the dialer for these hosts: their addresses are given, or a name server resolves them."""
    from holdfast.egress.dial import Dialer, Lookups, look_up
    from holdfast.egress.upstream import Proxies, Upstreams

    known, lookups = dict(hosts.addresses), Lookups(look_up)

    async def resolve(name: str) -> Sequence[str]:
        given = known.get(name.removesuffix("."))
        return await lookups(name) if given is None else (given,)

    return Dialer(resolve, Upstreams(Proxies.from_environ(os.environ)))


def _raise_limit() -> int:
    """Raise the descriptor limit: each name needs a few listeners, each connection two sockets.

    Together they may exceed the usual soft limit.
    """
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
