"""What a run reached, in lines of `task show`; an event that somebody made otherwise is not obeyed."""

from holdfast.board.rules.rows import TaskEvent
from holdfast.commands.store import network_lines
from holdfast.dispatch.rules.runsteps import make_account
from holdfast.wire.processes import HostRefusal, HostTraffic, NetworkReport


def an_event(payload: dict[str, object]) -> TaskEvent:
    return TaskEvent(
        seq=1, board="b", task_id="t", run_id="r", kind="run_network", actor="board", at_ms=0, payload=payload
    )


def test_hosts_ports_bytes_and_times_and_what_was_refused_are_lines() -> None:
    told = NetworkReport(
        [HostTraffic("a.test", 443, 2, 10, 20, 0, 1000, 3500)],
        [HostRefusal("b.test", None, "no rule allows it", "--allow-host b.test", 4, 1500)],
        3,
    )
    assert network_lines(an_event(make_account(["a.test"], told, whole=False))) == [
        "reached a.test:443: 2 connections, 10 bytes sent, 20 received, 2.5 s",
        "was refused b.test (4 times): no rule allows it; to allow it: --allow-host b.test",
        "and 3 more hosts",
    ]


def test_what_nobody_counted_is_said_as_that() -> None:
    whole = network_lines(an_event(make_account([], None, whole=True)))
    assert whole == ["had the whole network; its connections were not counted"]
    assert network_lines(an_event(make_account([], None, whole=False))) == []
    assert network_lines(an_event({"counted": True, "sent": "x", "refused": [1]})) == []
