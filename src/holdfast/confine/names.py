"""The process that serves the names of one command of `holdfast exec`, and what becomes of it.

It is a fork of ours, made before the command is planned, and loads what it needs while the command starts:
nobody waits for that but the first question. It ends with us, and when the command has ended it says what
went out. The server does the same on its own loop, with the same broker (`launch.py`).

What it loads is loaded before the fork of anything that the command could have changed: `wait_ready` is for
commands that may write where that is.

With somebody to ask (`ask_s`) it says each question as a line, and hears the answer as one.
"""

import os
import select

from holdfast.annotations import TYPE_CHECKING, Any, Callable, Final, NoReturn, Protocol, Sequence
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.light import signal, suppress
from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.policy.hostwish import is_plain

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
    from holdfast.local.loop import AnyLoop
    from holdfast.sandbox.policy.hostwish import HostWish

READY_S: Final = 20.0  # a machine under load loads a few modules
STOP_S: Final = 5.0  # what was sent arrives, or is cut off
MAX_REPORT: Final = 4 * 1024 * 1024  # rows of a thousand hosts, with their names
_WANTED: Final = 16 * 1024  # descriptors of the process of one command
_SHARE: Final = 0.5  # of the descriptors that a process may have: the rest is for everything else
_CHECK, LOAD, SERVE = b"c", b"l", b"s"  # what it is told
_FINE, READY = b"fine\n", b"ready\n"  # what it says
ASKS, WITHDRAWS = b"?", b"-"  # how its lines begin while it serves, but for the report
_MAX_ANSWER: Final = 4096  # bytes of answers that are read at once


class Answerer(Protocol):
    """Who answers questions about hosts: `ask` is told one, and calls what it is given once, with the answer.

    A question has the fields of `egress.asking.questions.HostQuestion`.
    """

    def ask(self, question: "dict[str, Any]", answer: "Callable[[str], None]") -> None: ...

    def withdraw(self, id_: int) -> None: ...


class NamesProcess:
    """The process: it checks the hosts, is ready, gets the sockets of a command, and is told the end."""

    def __init__(self, hosts: "HostWish", keys: "KeptKeys | None" = None) -> None:
        """With keys that stay outside, their certificates are there once it is ready. Raises OSError."""
        import _socket as socket

        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._said = b""
        self._plain = not hosts.addresses and all(map(is_plain, (*hosts.allow, *hosts.deny)))
        self._serving = self._ready = False
        self._loop: AnyLoop | None = None  # on which questions are heard
        parent = os.getpid()
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _be(parent, theirs, hosts, keys)
        finally:
            theirs.close()

    def check(self) -> None:
        """The hosts are understood; of what is plainly a rule nobody has to be asked.

        Raises:
            UsageError: a rule makes no sense.
            SandboxUnavailable: the process is gone.
        """
        if self._plain:
            return
        self._sock.send(_CHECK)
        self._wait_for(b"\n")
        if not self._said.startswith(_FINE):
            self._wait_for(b"\0")
            message, remedy = self._said.rstrip(b"\0").decode("utf-8", "replace").split("\n")[:2]
            raise UsageError(message, remedy=remedy or None)

    def wait_ready(self) -> None:
        """Nothing more is loaded. Raises SandboxUnavailable."""
        self._sock.send(LOAD)
        self._wait_for(READY)

    def serve(self, fds: Sequence[int]) -> None:
        """Serve these sockets of the command, which stay the caller's: those of names, and ports besides."""
        import _socket as socket
        import struct

        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))
        self._sock.sendmsg([SERVE], [rights])
        self._serving = True

    def attend(self, loop: "AnyLoop", answerer: Answerer) -> None:
        """Have its questions answered, on this loop."""
        self._loop = loop
        loop.add_reader(self._sock.fileno(), self._hear_questions, answerer)

    def _hear_questions(self, answerer: Answerer) -> None:
        try:
            heard = self._receive(0)
        except OSError:
            heard = False
        if not heard and self._loop is not None:
            self._loop.remove_reader(self._sock.fileno())
        while b"\n" in self._said:
            line, _, self._said = self._said.partition(b"\n")
            if line + b"\n" == READY:
                self._ready = True
            elif line.startswith(ASKS):
                self._ask(line[1:], answerer)
            elif line.startswith(WITHDRAWS):
                answerer.withdraw(int(line[1:]))

    def _ask(self, line: bytes, answerer: Answerer) -> None:
        import json

        question = json.loads(line)

        def answer(text: str) -> None:
            with suppress(OSError):  # it is gone, and nobody waits
                self._sock.send(f"{question['id']} {text}\n".encode())

        answerer.ask(question, answer)

    def end(self) -> dict[str, Any] | None:
        """The command has ended: what went out, once what it sent has arrived. None: nobody knows.

        The process is gone then: to look for what else is left of a command takes long while it is there.
        """
        if self._loop is not None:
            self._loop.remove_reader(self._sock.fileno())
        try:
            return self._hear_out()
        finally:
            self._sock.close()
            with suppress(ProcessLookupError, ChildProcessError):  # it was reaped with others
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)

    def _hear_out(self) -> dict[str, Any] | None:
        import _socket as socket

        if not self._serving:
            return None
        if not self._is_ready():
            return {"sent": [], "refused": [], "dropped": 0}  # nobody was answered before it ended
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
                    return True  # it is gone, which is told otherwise
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
        """Hear more; False at its end. Raises OSError."""
        asked = select.poll()
        asked.register(self._sock.fileno(), select.POLLIN)
        if not asked.poll(timeout_s * 1000) or len(self._said) > MAX_REPORT:
            raise TimeoutError
        data: bytes = self._sock.recv(64 * 1024)
        self._said += data
        return bool(data)


def _be(parent: int, told: "_socket.socket", hosts: "HostWish", keys: "KeptKeys | None") -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        end_with_parent(keys)
        kernel.close_others({told.fileno()})  # a pipe of the command that we hold would never end
        if os.getppid() == parent:
            serve(told, hosts, keys)
            code = 0
    finally:
        os._exit(code)


def end_with_parent(keys: "KeptKeys | None") -> None:
    """End when our parent does, also when it is killed; what was made for these keys is removed then."""
    if keys is None:
        kernel.die_with_parent(signal.SIGKILL)
        return

    def end(*_: object) -> NoReturn:
        keys.forget()
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    kernel.die_with_parent(signal.SIGTERM)


def serve(told: "_socket.socket", hosts: "HostWish", keys: "KeptKeys | None") -> None:
    """Do what we are told, and load what that needs then: until the command runs others have more to do."""
    from holdfast.sandbox.protocol import orders
    from holdfast.sandbox.protocol.loopback import MAX_LISTENERS

    inspector = None
    while True:
        word, fds = orders.receive_with_fds(told, 1, MAX_LISTENERS)
        if word == _CHECK:
            try:
                read_rules(hosts)
            except UsageError as exc:
                told.send(f"{exc}\n{exc.remedy or ''}\n\0".encode())
                return
            told.send(_FINE)
            continue
        if word not in (LOAD, SERVE):
            return
        import asyncio
        import json
        from functools import partial

        from holdfast.sandbox.protocol.names import count_handed

        rules = read_rules(hosts)
        make_broker(rules, hosts, None)
        if keys is not None and inspector is None:
            inspector = keys.make_inspector()
            kernel.forbid_inspection()  # whoever reads our memory has the keys
        most = _SHARE * _raise_limit()
        told.send(READY)
        if word == SERVE:
            count = count_handed(fds)
            make = partial(make_broker, rules, hosts, fds[:count], inspector=inspector)
            report = asyncio.run(_serve_until_told(told, make, most, fds[count:]))
            told.setblocking(True)
            try:
                told.sendall(json.dumps(report).encode())
            except OSError:  # our parent was killed: it hears nothing and removes nothing
                if keys is not None:
                    keys.forget()
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
    """Questions to the process that we are a fork of, and its answers."""

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
            data = b""  # it died without having heard all that we said
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
    """The brokers of every command of a server, which is known by its number; on the running loop."""

    def __init__(self) -> None:
        import resource

        self._brokers: dict[int, NameBroker] = {}
        self._most = _SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def _has_room(self, count: int) -> bool:
        return sum(broker.descriptors for broker in self._brokers.values()) + count <= self._most

    def open(self, id_: int, hosts: "HostWish", fds: Sequence[int], ask: "Ask | None" = None) -> list[int]:
        """Serve this command with the sockets of its names; those that are left of the descriptors.

        `ask` is asked about hosts, if its policy has somebody asked.
        """
        from holdfast.sandbox.protocol.names import count_handed

        count = count_handed(fds)
        broker = make_broker(read_rules(hosts), hosts, fds[:count], self._has_room, ask=ask)
        if broker is not None:
            broker.open()
            self._brokers[id_] = broker
        return list(fds[count:])

    def services(self, id_: int) -> "Mapping[int, Service]":
        """Who answers at the ports of this machine's loopback that this command was allowed."""
        broker = self._brokers.get(id_)
        return {} if broker is None else broker.services

    def end(self, id_: int) -> dict[str, Any] | None:
        """The command has ended: what went out. None: it had no names."""
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
        UsageError: one makes no sense.
    """
    from holdfast.egress.hosts import check_addresses, parse_rules

    check_addresses(hosts.addresses)
    return parse_rules(hosts.allow, hosts.deny, private=hosts.private, own=hosts.own)


def make_broker(
    rules: "HostRules",
    hosts: "HostWish",
    fds: Sequence[int] | None,
    has_room: Callable[[int], bool] = lambda _: True,
    inspector: "Inspector | None" = None,
    ask: "Ask | None" = None,
) -> "NameBroker | None":
    """A broker for these sockets, which it takes over; without any, what it needs is loaded."""
    from holdfast.egress.asking.asker import ask_nobody
    from holdfast.egress.broker import NameBroker
    from holdfast.egress.inside import InsideSockets

    dialer = make_dialer(hosts)
    if fds is None:
        return None
    answers = ask_nobody if ask is None else ask
    inside = InsideSockets(fds)
    return NameBroker(rules, inside, dialer, has_room, inspector, ask=answers, ask_s=hosts.ask_s)


def make_dialer(hosts: "HostWish") -> "Dialer":
    """Who connects to these hosts: where they are is said, or a name server knows."""
    from holdfast.egress.dial import Dialer, look_up
    from holdfast.egress.upstream import Proxies, Upstreams

    known = dict(hosts.addresses)

    async def resolve(name: str) -> Sequence[str]:
        given = known.get(name.removesuffix("."))
        return await look_up(name) if given is None else (given,)

    return Dialer(resolve, Upstreams(Proxies.from_environ(os.environ)))


def _raise_limit() -> int:
    """Every name has a few listeners, and every connection two sockets: more than most are given at first."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
