"""What went out, in lines for a person and in the members of our JSON."""

from typing import Any

from holdfast.exec.traffic import MAX_TOLD, describe_refused, describe_sent, report

SENT = {
    "host": "a.example",
    "port": 443,
    "connections": 2,
    "failed": 1,
    "sent": 900,
    "received": 3 * 1024 * 1024,
    "first_ms": 1000,
    "last_ms": 3500,
    "slowed_ms": 0,
}


def refused(host: str, **more: Any) -> dict[str, Any]:
    row = {"host": host, "port": None, "rule": "no rule allows it", "grant": f"--allow-host {host}"}
    return {**row, "count": 2, "first_ms": 5, "program": None, **more}


def test_each_host_has_a_line() -> None:
    told = describe_sent({"sent": [SENT], "refused": [], "dropped": 0})
    wanted = (
        "holdfast: a.example:443: 2 connections (1 of them failed), 900 bytes sent, 3.0 MiB received, 2.5 s"
    )
    assert told == [wanted]
    assert describe_sent({"sent": [], "refused": [], "dropped": 0}) == ["holdfast: nothing went out"]
    assert "no host was allowed" in describe_sent(None)[0]


def test_a_refusal_has_its_rule_and_its_grant() -> None:
    assert describe_refused([refused("b.example")]) == [
        "holdfast: the sandbox refused the host b.example",
        "  rule: no rule allows it",
        "  to allow it: --allow-host b.example",
    ]
    told = describe_refused([refused("b.example", port=22, grant=None, program="ssh")])
    assert told == ["holdfast: the sandbox refused the host b.example:22 to ssh", "  rule: no rule allows it"]
    many = describe_refused([refused(f"{number}.example") for number in range(MAX_TOLD + 2)])
    assert many[-1] == "holdfast: and 2 more hosts; --json names all"


def test_json_has_every_row() -> None:
    told: Any = report({"sent": [SENT], "refused": [refused("b.example")], "dropped": 3})
    assert told["sent"][0]["bytesReceived"] == 3 * 1024 * 1024
    assert told["refused"][0]["grant"] == "--allow-host b.example"
    assert told["dropped"] == 3
