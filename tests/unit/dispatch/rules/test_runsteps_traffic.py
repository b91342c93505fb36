"""What the board is told of a run's network: bounded, and honest about what nobody counted."""

from holdfast.dispatch.rules.runsteps import MAX_ROWS, make_account
from holdfast.wire.processes import HostRefusal, HostTraffic, NetworkReport


def test_what_passed_and_what_was_refused_is_told() -> None:
    traffic = NetworkReport(
        [HostTraffic("a.test", 443, 2, 10, 20, 0, 1000, 3000)],
        [HostRefusal("b.test", None, "no rule allows it", "--allow-host b.test", 4, 1500)],
        1,
    )
    assert make_account(["a.test"], traffic, whole=False) == {
        "whole": False,
        "hosts": ["a.test"],
        "counted": True,
        "sent": [
            {
                "host": "a.test",
                "port": 443,
                "connections": 2,
                "sent": 10,
                "received": 20,
                "from_ms": 1000,
                "to_ms": 3000,
            }
        ],
        "refused": [
            {
                "host": "b.test",
                "port": None,
                "count": 4,
                "rule": "no rule allows it",
                "grant": "--allow-host b.test",
            }
        ],
        "more": 1,
    }


def test_what_nobody_counted_is_not_nothing() -> None:
    assert make_account([], None, whole=True) == {"whole": True, "hosts": [], "counted": False}


def test_of_very_many_hosts_some_are_told_and_the_rest_is_counted() -> None:
    many = NetworkReport(
        [HostTraffic(f"h{number}.test", 443, 1, 1, 1, 0, 1, 1) for number in range(50)],
        [HostRefusal(f"r{number}.test", None, "no", None, 1, 1) for number in range(50)],
        7,
    )
    account = make_account([f"h{number}.test" for number in range(50)], many, whole=False)
    assert [len(account[name]) for name in ("sent", "refused", "hosts")] == [MAX_ROWS] * 3  # type: ignore[arg-type]
    assert account["more"] == 2 * (50 - MAX_ROWS) + 7
