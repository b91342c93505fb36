"""What is said about Landlock alone: each loss where it applies, and nowhere else."""

import pytest

from holdfast.sandbox.plan.losses import MAX_NAMED, find_losses
from holdfast.sandbox.plan.plan import Base, Plan, Step, StepKind
from tests.support.rows import every_row

WS = Step(StepKind.WRITABLE, "/ws")
GIT = Step(StepKind.READ_ONLY, "/ws/.git")
KEY = Step(StepKind.MASK_FILE, "/ws/conf/key")
VAULT = Step(StepKind.MASK_DIRECTORY, "/ws/vault")


def made(*steps: Step, base: Base = Base.HOST, network_off: bool = True) -> Plan:
    return Plan(base, steps, network_off=network_off, cwd="/")


def says(texts: tuple[str, ...], *words: str) -> bool:
    """Does one of the texts hold all of these words?"""
    return any(all(word in text for word in words) for text in texts)


def test_with_a_new_kernel_nothing_is_missing() -> None:
    assert find_losses(made(WS, GIT, KEY, VAULT), abi=6, degraded=False).missing == ()


@every_row(("abi", "truncation", "signals"), [(1, 1, 1), (2, 1, 1), (3, 0, 1), (5, 0, 1), (6, 0, 0)])
def test_an_old_kernel_misses_truncation_and_signals(abi: int, truncation: bool, signals: bool) -> None:
    found = find_losses(made(WS), abi=abi, degraded=False)
    assert says(found.missing, "truncation") == truncation
    assert says(found.missing, "signals") == signals
    assert says(found.remedies, "6.12") == signals
    assert says(found.weakened, "moved or linked") == (abi < 2)


@pytest.mark.parametrize("network_off", [True, False])
def test_which_sockets_cannot_be_made_is_told(network_off: bool) -> None:
    found = find_losses(made(network_off=network_off), abi=5, degraded=False)
    assert says(found.weakened, "no socket") == network_off
    assert says(found.weakened, "unix sockets only pairs") == (not network_off)


def test_degraded_says_what_was_given_up() -> None:
    found = find_losses(made(WS, GIT, VAULT), abi=9, degraded=True)
    assert "/ws/.git read-only" in found.missing
    assert says(found.missing, "terminals")
    assert says(found.weakened, "names", "/ws/vault", "listed")
    assert not says(found.weakened, "cannot be listed")
    assert not says(found.remedies, "--degraded")


def test_strict_says_what_is_hindered_and_how_to_get_it() -> None:
    found = find_losses(made(WS, GIT), abi=9, degraded=False)
    assert says(found.weakened, "created", "/ws")
    assert says(found.remedies, "/ws", "--degraded")
    assert not says(found.weakened, "cannot be listed")
    found = find_losses(made(WS, VAULT), abi=9, degraded=False)
    assert says(found.weakened, "/ws", "cannot be listed")
    assert says(found.remedies, "list", "/ws", "--degraded")
    # around what is hidden nothing can be created in any case
    assert not says(found.remedies, "to create")


def test_what_is_hidden_shows_its_outside() -> None:
    assert says(find_losses(made(WS, KEY), abi=9, degraded=False).weakened, "size", "/ws/conf/key")
    assert not says(find_losses(made(WS), abi=9, degraded=False).weakened, "size")


@pytest.mark.parametrize("degraded", [True, False])
def test_where_files_are_untouched_nothing_is_said_about_them(degraded: bool) -> None:
    found = find_losses(made(base=Base.UNTOUCHED), abi=1, degraded=degraded)
    assert found.missing == ("processes outside safe from signals",)
    assert not says(found.weakened, "owner")
    assert not says(found.weakened, "terminal")


def test_many_paths_are_counted_not_listed() -> None:
    many = [Step(StepKind.READ_ONLY, f"/ws/{number}") for number in range(MAX_NAMED + 3)]
    [text] = [
        text for text in find_losses(made(WS, *many), abi=9, degraded=True).missing if "read-only" in text
    ]
    assert text == "/ws/0, /ws/1, /ws/2, /ws/3 and 3 more read-only"


def test_what_is_denied_and_missing_is_open_once_it_is_made() -> None:
    plan = Plan(Base.HOST, (), network_off=True, cwd="/", later=("/w/.env",))
    told = "/w/.env can be read if it is created while the command runs"
    assert told in find_losses(plan, abi=7, degraded=False).weakened
