import pytest

from holdfast.agents.fleet.facts import EnvironmentFacts
from holdfast.board.rules.assign import Places
from holdfast.dispatch.rules import fleet
from holdfast.dispatch.rules.profiles import WorkerProfile
from holdfast.dispatch.rules.runsteps import ANSWERED
from tests.support.dispatch import a_task

GIB = 1 << 30
READY = EnvironmentFacts(
    at=100.0, reached=True, since=50.0, cpus=1, memory=64 * GIB, free=64 * GIB, backend="x"
)
AWAY = EnvironmentFacts(at=100.0, reached=False, since=50.0, error="nobody listens")


@pytest.mark.parametrize(
    ("facts", "after", "due"),
    [
        (None, 0.0, True),
        (READY, fleet.FRESH_S - 1, False),
        (READY, fleet.FRESH_S, True),
        (AWAY, fleet.AGAIN_S - 1, False),
        (AWAY, fleet.AGAIN_S, True),
        (READY, -5.0, True),
    ],
)
def test_an_environment_is_looked_at_when_what_is_known_is_old(
    facts: EnvironmentFacts | None, after: float, due: bool
) -> None:
    assert fleet.is_due(facts, 100.0 + after) is due


def test_slots_follow_from_processors_and_memory() -> None:
    assert fleet.count_slots(READY) == 4
    assert fleet.count_slots(EnvironmentFacts(at=0.0, reached=True, since=0.0, cpus=64, memory=3 * GIB)) == 3
    assert fleet.count_slots(EnvironmentFacts(at=0.0, reached=True, since=0.0)) >= 1, "it says nothing"


def test_nothing_is_begun_where_nobody_looked_answers_confines_or_has_room() -> None:
    assert fleet.find_holdup(READY, 3) == ""
    assert fleet.find_holdup(READY, 4) == "all 4 slots are taken"
    assert fleet.find_holdup(None, 0) == "it has not been checked yet"
    assert fleet.find_holdup(AWAY, 0) == "unreachable since 1970-01-01 00:00:50 UTC: nobody listens"
    weak = EnvironmentFacts(at=0.0, reached=True, since=0.0, cpus=1, unconfined="no namespaces")
    assert fleet.find_holdup(weak, 0) == "it cannot confine a worker: no namespaces"


def places(**running: int) -> Places:
    own = WorkerProfile(name="far", agent="shell", environment="box")
    other = WorkerProfile(name="plain", agent="shell")
    named = {"box": "", "gone": "", "pipe": "no session"}
    return fleet.make_places(named, {"box": READY, "gone": AWAY}, running, [own, other])


def test_a_host_offers_what_its_environments_take() -> None:
    assert places().list_claimable("plain") == ["", "box"]
    assert places().list_claimable("far") == ["", "box"], "without a name it means its profile's"
    assert places(box=4).list_claimable("far") == []
    assert places(box=4).list_claimable("plain") == [""], "this host itself goes on"


def test_the_slots_of_a_machine_that_is_reached_are_told_to_the_board() -> None:
    assert places().slots == {"box": 4}
    full = places().close_full({"box": 4, "gone": 9})
    assert full.environments["box"] == "all 4 slots are taken"
    assert full.environments["gone"] == places().environments["gone"], "why it is shut stays"
    assert places().close_full({"box": 3}) == places()


def test_why_a_task_waits_for_its_place_is_said() -> None:
    assert places().find_holdup(a_task(assignee="plain")) is None
    assert places().find_holdup(a_task(assignee="far")) is None
    assert places(box=4).find_holdup(a_task(assignee="far")) == "environment box: all 4 slots are taken"
    assert "unreachable since" in str(places().find_holdup(a_task(environment="gone")))
    assert places().find_holdup(a_task(environment="pipe")) == "environment pipe: no session"
    assert places().find_holdup(a_task(environment="x")) == "environment x: nobody here knows it"


def test_work_whose_machine_is_away_is_waited_for_unless_somebody_took_it_away() -> None:
    for outcome in ANSWERED:
        assert fleet.is_waited_for(outcome, unreached=True)
        assert not fleet.is_waited_for(outcome, unreached=False)
    for other in ("cancelled", "superseded", "lost", None):
        assert not fleet.is_waited_for(other, unreached=True)


def test_the_note_of_a_run_names_the_place_and_is_bounded() -> None:
    note = fleet.describe_waiting("box", "x" * 9999)
    assert note.startswith("waiting(environment unreachable): box: x")
    assert len(note) <= fleet.MAX_WHY
    assert fleet.is_unreached("stalled", "unreachable")
    assert not fleet.is_unreached("stalled", "")
