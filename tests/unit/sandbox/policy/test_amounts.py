"""Limits as people write them: what each means, and that a mistake is named."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.amounts import parse
from tests.support.rows import every_row


@every_row(
    ("name", "text", "field", "meant"),
    [
        ("memory", "2G", "memory", 2 << 30),
        ("memory", "512M", "memory", 512 << 20),
        ("memory", "64MiB", "memory", 64 << 20),
        ("memory", "1.5g", "memory", 3 << 29),
        ("memory", 67108864, "memory", 64 << 20),
        ("disk", "5 GB", "disk", 5 << 30),
        ("pids", "200", "pids", 200),
        ("cpus", "1.5", "cpus", 1.5),
        ("cpus", 2, "cpus", 2),
        ("open_files", "1024", "open_files", 1024),
        ("timeout", "10m", "timeout_s", 600.0),
        ("timeout", "1h30m", "timeout_s", 5400.0),
        ("timeout", "90", "timeout_s", 90.0),
        ("timeout", "250ms", "timeout_s", 0.25),
    ],
)
def test_every_way_to_write_a_limit(name: str, text: object, field: str, meant: float) -> None:
    assert getattr(parse({name: text}), field) == meant


@every_row(
    ("name", "text"),
    [
        *(("memory", text) for text in ("", "G", "2X", "-1G", "1e9", "9" * 400, "1K", True)),
        *(("pids", text) for text in ("", "0", "-1", "1.5", "many", "9" * 5000)),
        *(("cpus", text) for text in ("", "0", "1.5.1", "half", float("nan"), float("inf"))),
        *(("timeout", text) for text in ("", "soon", "10x", "m10", "0", "10 parsecs")),
        ("open_files", "10"),
        ("color", "red"),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, text: object) -> None:
    with pytest.raises(UsageError) as refused:
        parse({name: text})
    assert name.replace("_", "-") in str(refused.value)


def test_what_is_not_given_is_no_limit() -> None:
    assert parse({"memory": None, "pids": 3}) == Limits(pids=3)
