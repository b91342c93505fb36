"""The plan in words and in bytes."""

import pytest

from holdfast.sandbox.plan.plan import Base, Plan, PlanLink, Step, StepKind, decode, encode
from tests.support.rows import every_row

PLAN = Plan(
    Base.EMPTY,
    (
        Step(StepKind.PIN, "/w/a"),
        Step(StepKind.READABLE, "/usr"),
        Step(StepKind.WRITABLE, "/w"),
        Step(StepKind.READ_ONLY, "/w/.git"),
        Step(StepKind.MASK_DIRECTORY, "/w/a/d"),
        Step(StepKind.MASK_FILE, "/w/a/f \udcff\n"),
    ),
    network_off=True,
    cwd="/w",
    absent=("/w/.codex", "/w/.aws"),
    later=("/w/.aws", "/home/token"),
    links=(PlanLink("/bin", "usr/bin"),),
    loopback_ports=(80, 65535),
)


def test_a_plan_describes_every_operation() -> None:
    assert PLAN.describe() == [
        "nothing is visible",
        "/bin is a link to usr/bin",
        "/w/a cannot be renamed or removed",
        "/usr is readable",
        "/w is writable",
        "/w/.git is read-only",
        "/w/a/d is hidden with all below it",
        "/w/a/f \udcff\n is hidden",
        "/w/.codex does not exist and must not be created",
        "/w/.aws does not exist and must not be created",
        "/home/token does not exist and would be hidden",
        "network is off",
        "TCP port 80 of the host's loopback is reachable",
        "TCP port 65535 of the host's loopback is reachable",
        "starts in /w",
    ]


@pytest.mark.parametrize("base", list(Base))
def test_every_base_is_described(base: Base) -> None:
    lines = Plan(base, (), network_off=False, cwd="/").describe()
    assert lines[1:] == ["network is on", "starts in /"]


def test_a_plan_survives_the_way_to_the_launcher() -> None:
    assert decode(encode(PLAN)) == PLAN


def test_ports_are_let_through_only_while_the_network_is_off() -> None:
    with pytest.raises(ValueError, match="off"):
        Plan(Base.HOST, (), network_off=False, cwd="/", loopback_ports=(80,))


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        encode(Plan(Base.HOST, (Step(StepKind.PIN, "/a\0"),), network_off=False, cwd="/"))


@every_row(
    "data",
    [
        b"",
        b"host",
        b"host\0off\0/\0zero\0" + b"0",
        b"host\0maybe\0/\0" + b"0\0" + b"0",
        b"host\0on 80\0/\0" + b"0\0" + b"0",
        b"host\0off \0/\0" + b"0\0" + b"0",
        b"host\0off 0\0/\0" + b"0\0" + b"0",
        b"host\0off 080\0/\0" + b"0\0" + b"0",
        b"host\0off 65536\0/\0" + b"0\0" + b"0",
        b"elsewhere\0off\0/\0" + b"0\0" + b"0",
        b"host\0off\0/\0" + b"1\0" + b"0",
        b"host\0off\0/\0" + b"2\0" + b"0",
        b"host\0off\0/\0" + b"-1\0" + b"0",
        b"host\0off\0/\0" + b"2\0" + b"-1\0/a\0/b",
        b"host\0off\0/\0" + b"0\0" + b"0\0pin",
        b"host\0off\0/\0" + b"0\0" + b"0\0nail\0/a",
    ],
)
def test_bytes_that_are_not_a_plan_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(data)
