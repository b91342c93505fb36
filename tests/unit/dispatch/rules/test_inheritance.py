"""A child never has more than its parent without a person who agreed."""

import pytest

from holdfast.dispatch.rules.inheritance import ask_about, find_excess
from holdfast.dispatch.rules.profiles import BUILTIN, WorkerProfile
from tests.support.rows import every_row

PLAIN = {"name": "p", "agent": "shell", "network": False}
RICH = {
    "network": True,
    "env": ("KEY",),
    "key_env": "OTHER",
    "variables": {"A": "1"},
    "writable": ("/srv",),
    "relocate": False,
    "copy": (".env",),
}


def a_profile(**more: object) -> WorkerProfile:
    return WorkerProfile(**{**PLAIN, **more})  # type: ignore[arg-type]  # a test that errs here fails here


@every_row(("member", "wanted"), list(RICH.items()))
def test_each_member_that_gives_more_is_named(member: str, wanted: object) -> None:
    [named] = find_excess(a_profile(), a_profile(**{member: wanted}), {"KEY"})
    assert named in ask_about("a", "b", [named])


def test_whoever_has_as_much_may_pass_it_on() -> None:
    assert find_excess(a_profile(**RICH), a_profile(**RICH), {"KEY"}) == []
    assert find_excess(a_profile(**RICH), a_profile(), {"KEY"}) == []


@pytest.mark.parametrize(
    ("parent", "child", "more"),
    [
        (("/srv",), ("/srv/a",), False),
        (("/srv/",), ("/srv",), False),
        (("/srv",), ("/srv-other",), True),
        (("/srv/a",), ("/srv",), True),
        ((), ("~/x",), True),
    ],
)
def test_paths_are_compared_by_their_parts(
    parent: tuple[str, ...], child: tuple[str, ...], more: bool
) -> None:
    assert bool(find_excess(a_profile(writable=parent), a_profile(writable=child), ())) is more


def test_a_variable_that_is_not_set_gives_nothing() -> None:
    assert find_excess(a_profile(), a_profile(env=("KEY",)), ()) == []


def test_a_variable_with_another_value_is_another() -> None:
    assert find_excess(a_profile(variables={"A": "1"}), a_profile(variables={"A": "2"}), ()) == ["its own A"]


def test_a_script_cannot_hand_its_words_to_an_agent_with_a_network() -> None:
    assert find_excess(BUILTIN["script"], BUILTIN["codex"], {"OPENAI_API_KEY"}) == [
        "the network",
        "the variable OPENAI_API_KEY",
    ]
    assert find_excess(BUILTIN["codex"], BUILTIN["script"], {"OPENAI_API_KEY"}) == []


def test_a_cli_that_reaches_its_model_is_more_than_a_script_without_a_network() -> None:
    codex = a_profile(agent="codex")
    assert find_excess(a_profile(), codex, ()) == ["a model to talk to"]
    assert find_excess(codex, codex, ()) == []
    assert find_excess(a_profile(network=True), codex, ()) == []
    assert find_excess(a_profile(), a_profile(agent="claude"), ()) == []
