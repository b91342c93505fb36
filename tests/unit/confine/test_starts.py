"""What is said of one start besides what is known of its kind."""

from holdfast.confine.starts import StartedCommand, with_limits
from holdfast.sandbox.plan.select import UNCONFINED, WEAKNESSES, Backend, Enforcement
from holdfast.sandbox.policy.policy import Where, bind, read_only

BOUND = bind(read_only(), Where("/w", ("/w",), slash_tmp=False))


def test_what_came_out_weaker_in_this_start_alone_is_said_once() -> None:
    held = Enforcement(Backend.NAMESPACES, weakened=(WEAKNESSES["landlock"],))
    started = StartedCommand(1, 2, ("landlock", "masks"))
    told = with_limits(held, started, BOUND)
    assert told.weakened == (WEAKNESSES["landlock"], WEAKNESSES["masks"])


def test_a_start_as_it_was_expected_changes_nothing() -> None:
    held = Enforcement(Backend.NAMESPACES)
    assert with_limits(held, StartedCommand(1, 2), BOUND) == held


def test_where_nothing_is_confined_nothing_is_weaker() -> None:
    assert with_limits(UNCONFINED, StartedCommand(1, 2, ("masks",)), None) == UNCONFINED
