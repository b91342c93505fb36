"""Orders and reports of the launcher over a real socket pair: what is sent is what arrives."""

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from holdfast.sandbox.kernel.kernel import StageFailed
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.protocol.orders import (
    END_OWNER,
    EXITED,
    HAS_STATE,
    IN_MEMFD,
    MAX_INLINE,
    MAX_PAYLOAD,
    MAX_REPORT,
    SIGNAL,
    START,
    STARTED,
    TTY,
    Event,
    Order,
    StartReport,
    decode_report,
    encode_report,
    is_complete,
    send_request,
)
from tests.support.descriptors import none_left_open
from tests.support.patience import patient

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(patient(5))
        theirs.settimeout(patient(5))
        yield ours, theirs


def passed_on(pair: Pair, request: Order, fds: tuple[int, ...] = ()) -> tuple[Order, list[int]]:
    """What the launcher receives; the descriptors are the caller's to close."""
    send_request(pair[0], request, fds)
    received = orders.receive(pair[1])
    assert received is not None
    return received


def start(*, argv: tuple[bytes, ...] = (b"ls",), env: tuple[bytes, ...] = (), flags: int = 0) -> Order:
    return Order(START, 7, 3, flags, cwd=b"/srv", program=b"ls", argv=argv, env=env)


@pytest.mark.parametrize(
    "request_",
    [
        start(),
        start(argv=(b"ls", b"", b"-l", b"\xff\n"), env=(b"A=", b"B==x", b"C=\xc3\xa9")),
        start(argv=(), env=()),
        start(argv=(), env=(b"A=b",)),
        start(argv=(b"",), env=(b"=",)),
        start(flags=TTY | HAS_STATE),
        Order(START, 2**32 - 1, 2**32 - 1, program=b"", cwd=b"", argv=(b"x",)),
        Order(SIGNAL, 7, signal=15),
        Order(SIGNAL, 7, signal=-1),
        Order(END_OWNER, owner=3),
    ],
)
def test_an_order_arrives_as_it_was_given(pair: Pair, request_: Order) -> None:
    assert passed_on(pair, request_) == (request_, [])


def test_orders_arrive_one_by_one_and_in_order(pair: Pair) -> None:
    sent = [start(argv=(b"%d" % n,)) for n in range(5)]
    for order in sent:
        send_request(pair[0], order)
    assert [orders.receive(pair[1]) for _ in sent] == [(order, []) for order in sent]


def test_only_a_start_carries_a_command(pair: Pair) -> None:
    request = Order(SIGNAL, 7, signal=9, cwd=b"/srv", program=b"ls", argv=(b"ls",), env=(b"A=b",))
    assert passed_on(pair, request) == (Order(SIGNAL, 7, signal=9), [])


def test_descriptors_arrive_in_order_and_are_not_inherited(pair: Pair) -> None:
    read, write = os.pipe()
    received, fds = passed_on(pair, start(flags=HAS_STATE), (write, read, write, read))
    try:
        assert received == start(flags=HAS_STATE)
        same = [os.fstat(fd).st_mode for fd in (write, read, write, read)]
        assert [os.fstat(fd).st_mode for fd in fds] == same
        os.write(fds[0], b"hello")
        assert os.read(fds[3], 5) == b"hello"
        assert not any(os.get_inheritable(fd) for fd in fds)
    finally:
        for fd in (read, write, *fds):
            os.close(fd)


def sized(length: int) -> Order:
    """A start whose payload has exactly this length."""
    fixed = len(b"\0".join((b"/srv", b"ls", b"", b"", b"")))
    return start(argv=(b"x" * (length - fixed),))


@pytest.mark.parametrize("length", [MAX_INLINE - 1, MAX_INLINE])
def test_a_small_order_fits_in_one_datagram(pair: Pair, length: int) -> None:
    assert passed_on(pair, sized(length)) == (sized(length), [])


@pytest.mark.parametrize("length", [MAX_INLINE + 1, 3 * MAX_INLINE, MAX_PAYLOAD])
def test_a_large_order_travels_in_memory_and_leaves_no_descriptor(pair: Pair, length: int) -> None:
    with none_left_open():
        received, fds = passed_on(pair, sized(length))
    assert received == sized(length)._replace(flags=IN_MEMFD)
    assert fds == []


def test_a_large_order_keeps_its_other_descriptors(pair: Pair) -> None:
    read, write = os.pipe()
    request = sized(2 * MAX_INLINE)._replace(flags=HAS_STATE, env=(b"A=b", b"C=d"))
    received, fds = passed_on(pair, request, (write, read, write, read))
    try:
        assert received == request._replace(flags=HAS_STATE | IN_MEMFD)
        assert len(fds) == 4
        os.write(fds[2], b"x")
        assert os.read(fds[3], 1) == b"x"
    finally:
        for fd in (read, write, *fds):
            os.close(fd)


def test_an_order_beyond_what_the_kernel_takes_is_refused(pair: Pair) -> None:
    with none_left_open(), pytest.raises(OSError, match="too long") as caught:
        send_request(pair[0], sized(MAX_PAYLOAD + 1))
    assert caught.value.errno == errno.E2BIG


@pytest.mark.parametrize("length", [100, 2 * MAX_INLINE])
def test_an_order_to_a_launcher_that_is_gone_fails_and_leaks_nothing(pair: Pair, length: int) -> None:
    pair[1].close()
    with none_left_open(), pytest.raises(BrokenPipeError):
        send_request(pair[0], sized(length))


def test_the_launcher_hears_that_the_server_is_gone(pair: Pair) -> None:
    send_request(pair[0], start())
    pair[0].close()
    assert orders.receive(pair[1]) == (start(), [])
    assert orders.receive(pair[1]) is None


@pytest.mark.parametrize(
    "event",
    [
        Event(STARTED, 7, 4321),
        Event(STARTED, 7, 0, errno.EAGAIN),
        Event(EXITED, 7, 4321, 0, 3 << 8),
        Event(EXITED, 2**32 - 1, 2**22, 0, 9, 2**40, 2**41, 2**50),
    ],
)
def test_a_report_arrives_as_it_was_given(event: Event) -> None:
    assert orders.unpack_event(orders.pack_event(event)) == event


def test_nobody_waits_for_the_listening_sockets_of_a_start_that_was_killed(pair: Pair) -> None:
    assert (
        orders.take_listeners(pair[0]) == []
    )  # the other end is open, in a process that was forked meanwhile
    assert pair[0].fileno() == -1


def test_a_report_brings_descriptors_and_the_end_is_heard(pair: Pair) -> None:
    event = Event(STARTED, 7, 4321)
    with open(os.devnull) as null:
        socket.send_fds(pair[0], [orders.pack_event(event)], [null.fileno()] * 3)
        pair[0].send(orders.pack_event(event))
        received = orders.receive_event(pair[1], 3)
        assert received is not None
        try:
            assert (received[0], len(received[1])) == (event, 3)
            assert all(os.path.sameopenfile(fd, null.fileno()) for fd in received[1])
            assert not any(os.get_inheritable(fd) for fd in received[1])
        finally:
            for fd in received[1]:
                os.close(fd)
    assert orders.receive_event(pair[1], 3) == (event, [])
    pair[0].close()
    assert orders.receive_event(pair[1], 3) is None


def test_a_command_that_runs_says_what_is_weaker_and_that_it_runs() -> None:
    said = encode_report(("landlock", "loopback"), runs=True)
    assert decode_report(said) == StartReport(("landlock", "loopback"), None, runs=True)


def test_a_failure_says_where_and_never_that_it_runs() -> None:
    said = encode_report(("loopback",), failure=StageFailed("uidmap", 1, "/a\udcff b"), runs=True)
    report = decode_report(said)
    assert report.failure is not None
    assert (report.failure.stage, report.failure.errno, report.failure.path) == ("uidmap", 1, "/a\udcff b")
    assert (report.weakened, report.runs) == (("loopback",), False)
    assert len(said) < MAX_REPORT


def test_who_says_nothing_or_breaks_off_does_not_run() -> None:
    whole = encode_report(("landlock",), runs=True)
    assert not any(decode_report(whole[:end]).runs for end in range(len(whole)))
    assert encode_report() == b""


def test_a_job_that_does_not_become_its_command_does_not_run() -> None:
    said = encode_report(runs=True) + encode_report(failure=StageFailed("exec", 2, "nosuch"))
    assert (decode_report(said).failure is not None, decode_report(said).runs) == (True, False)


def test_anything_else_is_no_report() -> None:
    with pytest.raises(ValueError, match="not a report"):
        decode_report(b"hello\0")


def test_only_that_the_command_runs_is_the_last_word() -> None:
    """A job that begins may still fail; of a pipe in the middle of a word nothing is known."""
    whole = encode_report(["proc"], runs=True)
    assert is_complete(whole)
    assert not any(is_complete(whole[:length]) for length in range(len(whole)))
    assert not is_complete(encode_report(["proc"], begins=True))
    assert decode_report(encode_report(begins=True)).runs
    failed = encode_report(begins=True) + encode_report(failure=StageFailed("exec", 2, "/x"))
    assert not is_complete(failed)
    assert not decode_report(failed).runs
