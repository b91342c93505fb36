"""What somebody is told whose worker does not work."""

import shlex
from dataclasses import replace

from holdfast.agents.evidence.advice import MAX_DENIALS, Surroundings, advise, combine_grants
from holdfast.agents.evidence.evidence import Denied, Foreseen, WorkerState

RELOCATED = Surroundings(
    worker="codex-1",
    state="/h/workers/codex-1/state",
    keeps_state=True,
    given=("/home/u/.codex/auth.json (its login): copied",),
    denials=(),
    confined=True,
    traced=False,
)


def denied(path: str, *, option: str = "--allow-write", relocation: str = "", host: bool = False) -> Denied:
    return Denied(
        "create",
        path,
        "EROFS",
        "openat",
        rule="outside the writable roots",
        grant=f"{option} {shlex.quote(path)}" if option else "",
        relocation=relocation,
        host=host,
    )


def test_that_its_state_is_relocated_is_said_with_what_it_has() -> None:
    assert advise(WorkerState.RUNNING, RELOCATED) == [
        "its state is relocated: its CLI keeps it in /h/workers/codex-1/state, not in the home",
        "  of its user's: /home/u/.codex/auth.json (its login): copied",
    ]
    assert "  of its user's: nothing" in advise(WorkerState.RUNNING, replace(RELOCATED, given=()))


def test_of_a_program_without_state_nothing_is_said() -> None:
    assert advise(WorkerState.RUNNING, replace(RELOCATED, keeps_state=False)) == []


def test_one_that_failed_is_told_what_was_refused_and_what_is_enough() -> None:
    places = ("/home/u/.a/x", "/home/u/.a", "/home/u/.b c", *(f"/x/{number}" for number in range(9)))
    about = replace(RELOCATED, state="", denials=[denied(place, relocation="A=/s") for place in places])
    told = advise(WorkerState.FAILED, about)
    assert len([line for line in told if line.startswith("refused: ")]) == MAX_DENIALS
    [grant] = [line for line in told if line.startswith("one grant")]
    assert "--allow-write /home/u/.a --allow-write '/home/u/.b c'" in grant
    assert "/home/u/.a/x" not in grant
    assert "or let its state be relocated: leave out --no-relocate" in told
    assert told[-1] == "what is different from a terminal: holdfast worker equivalence codex-1"


def test_one_that_works_is_given_no_advice() -> None:
    about = replace(RELOCATED, denials=[denied("/a")])
    assert not any("grant" in line for line in advise(WorkerState.RUNNING, about))


def test_where_nothing_was_seen_to_be_refused_the_way_to_see_it_is_said() -> None:
    word = "no refusal was seen; those of reading are seen with --trace"
    assert word in advise(WorkerState.FAILED, RELOCATED)
    for other in (replace(RELOCATED, traced=True), replace(RELOCATED, confined=False)):
        assert word not in advise(WorkerState.FAILED, other)


def test_what_the_host_itself_refuses_is_not_the_sandboxs() -> None:
    about = replace(RELOCATED, denials=[denied("/a", host=True)])
    assert not any(line.startswith("refused") for line in advise(WorkerState.FAILED, about))


def test_what_was_only_foreseen_is_granted_as_well() -> None:
    seen = Foreseen(
        "create", "/home/u/.cache/x", "EROFS", "the home is read-only", "--allow-write /home/u/.cache"
    )
    told = advise(WorkerState.FAILED, replace(RELOCATED, denials=[denied("/b"), seen]))
    assert f"one grant that is enough for all of it: --allow-write /b {seen.grant}" in told
    word = "no refusal was seen; those of reading are seen with --trace"
    assert word in advise(WorkerState.FAILED, replace(RELOCATED, denials=[seen]))


def test_grants_of_different_kinds_are_combined() -> None:
    seen = [
        denied("/b"),
        denied("/a", option="--allow-read"),
        denied("on", option="--network"),
        denied("/c", option=""),
    ]
    assert combine_grants(seen) == "--allow-read /a --allow-write /b --network on"
    assert combine_grants([]) == ""
