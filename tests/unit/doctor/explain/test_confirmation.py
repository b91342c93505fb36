"""A text that this machine contradicts is not believed."""

import errno
from dataclasses import replace

import pytest

from holdfast.doctor.explain.confirmation import TRIED, compared
from holdfast.doctor.explain.explanation import TABLE, explain, lines
from holdfast.sandbox.host.hostfacts import Fact
from holdfast.sandbox.host.stages import probes
from tests.unit.doctor.facts.test_rules import HOST

LOOPBACK = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (Fact("loopback", works=True), "but loopback worked here"),
        (
            Fact("loopback", False, "loopback", errno.EPERM),
            "confirmed, loopback is refused here (loopback: EPERM)",
        ),
        (Fact("loopback", None, "netns", errno.ENOSPC), "loopback could not be tried here (netns: ENOSPC)"),
    ],
)
def test_what_was_tried_here_is_told(fact: Fact, said: str) -> None:
    [one] = compared(explain(LOOPBACK), replace(HOST, facts=(fact,)))
    assert one.here is not None
    assert said in one.here
    assert f"  here: {one.here}" in lines([one])


def test_one_refusal_among_several_confirms() -> None:
    facts = (Fact("mount propagation", works=True), Fact("mount calls", False, "mount", errno.EPERM))
    [one] = compared(explain("bwrap: pivot_root: Operation not permitted"), replace(HOST, facts=facts))
    assert one.here is not None
    assert one.here.startswith("confirmed, mount calls")


@pytest.mark.parametrize("text", [LOOPBACK, "Not logged in"])
def test_where_nothing_was_tried_nothing_is_told(text: str) -> None:
    [one] = compared(explain(text), replace(HOST, facts=()))
    assert one.here is None


def test_every_name_is_known() -> None:
    tried = set(probes("", root=False))
    assert {name for names in TRIED.values() for name in names} <= tried
    ids = {row.id for row in TABLE}
    assert set(TRIED) <= ids | {id_.partition(".")[0] for id_ in ids}
