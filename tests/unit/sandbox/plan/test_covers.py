"""Which paths of a plan are to be covered again, and where something may appear."""

from holdfast.sandbox.plan.covers import (
    MAX_COVERS,
    UNCOVERED_BY_BWRAP,
    Cover,
    covers_of,
    declare_bwrap,
    names_of,
)
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind


def plan(*steps: tuple[StepKind, str], later: tuple[str, ...] = ()) -> Plan:
    return Plan(Base.HOST, tuple(Step(*step) for step in steps), network_off=True, cwd="/", later=later)


WORKSPACE = (StepKind.WRITABLE, "/w")


def test_masks_and_what_is_read_only_are_covers_and_what_is_denied_later() -> None:
    made = plan(
        (StepKind.PIN, "/w/a"),
        (StepKind.MASK_DIRECTORY, "/home/.ssh"),
        WORKSPACE,
        (StepKind.READ_ONLY, "/w/.git"),
        (StepKind.MASK_FILE, "/w/a/.env"),
        later=("/w/later",),
    )
    assert covers_of(made)[0] == (
        Cover("/w/.git", read_only=True),
        Cover("/w/a/.env", read_only=False, pins=("/w/a",)),
        Cover("/w/later", read_only=False),
        Cover("/home/.ssh", read_only=False),
    )
    assert covers_of(made)[1]


def test_a_directory_is_a_pin_of_what_is_below_it_and_not_of_what_begins_alike() -> None:
    made = plan((StepKind.PIN, "/w/a"), WORKSPACE, (StepKind.MASK_FILE, "/w/ab"))
    assert covers_of(made)[0] == (Cover("/w/ab", read_only=False),)


def test_of_too_many_those_in_writable_roots_are_kept_and_it_is_said() -> None:
    outside = [(StepKind.MASK_FILE, f"/etc/{number}") for number in range(MAX_COVERS)]
    covers, whole = covers_of(plan(*outside, WORKSPACE, (StepKind.MASK_FILE, "/w/.env")))
    assert len(covers) == MAX_COVERS
    assert covers[0].path == "/w/.env"
    assert not whole


def test_a_plan_that_covers_nothing_needs_nobody() -> None:
    assert not plan(WORKSPACE, (StepKind.PIN, "/w/a"), (StepKind.READABLE, "/usr")).covers
    assert plan(WORKSPACE, later=("/w/.env",)).covers
    assert plan(WORKSPACE, (StepKind.READ_ONLY, "/w/.git")).covers


def test_what_the_view_makes_itself_is_not_replaced_by_anybody() -> None:
    made = plan((StepKind.MASK_FILE, "/proc/kcore"), (StepKind.MASK_FILE, "/dev/mem"))
    assert covers_of(made) == ((), True)


def test_every_name_on_the_way_may_appear_anew() -> None:
    assert names_of("/w/a/.env") == [("/", "w"), ("/w", "a"), ("/w/a", ".env")]
    assert names_of("/w") == [("/", "w")]


def test_bubblewrap_declares_what_it_does_not_keep() -> None:
    assert declare_bwrap(plan(WORKSPACE, (StepKind.READ_ONLY, "/w/.git"))) == (UNCOVERED_BY_BWRAP,)
    assert declare_bwrap(plan(WORKSPACE)) == ()
