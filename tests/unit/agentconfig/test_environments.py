"""An environment of ours in a file that others own too."""

import tomllib

import pytest

from holdfast.agentconfig.environments import Environment, apply, has_entry, strip
from holdfast.errors import InvalidRequest

BRIDGE = Environment("holdfast", ("/opt/bin/holdfast", "serve", "--listen", "stdio"))
REMOTE = Environment("holdfast", url="wss://h:1", token='se"cret')
THEIRS = """# mine
include_local = true

[[environments]]
id = "pod" # theirs
program = "kubectl"
"""


def test_a_program_is_started_by_codex_itself() -> None:
    (entry,) = tomllib.loads(apply("", BRIDGE))["environments"]
    assert entry == {
        "id": "holdfast",
        "program": "/opt/bin/holdfast",
        "args": ["serve", "--listen", "stdio"],
    }


def test_an_address_has_its_token_and_no_repr_shows_it() -> None:
    (entry,) = tomllib.loads(apply("", REMOTE))["environments"]
    assert entry == {"id": "holdfast", "url": "wss://h:1", "auth_bearer_token": 'se"cret'}
    assert "cret" not in repr(REMOTE)


@pytest.mark.parametrize("text", ["", THEIRS, THEIRS.replace("\n", "\r\n"), "\ufeff" + THEIRS])
@pytest.mark.parametrize("default", [False, True])
def test_a_second_time_changes_nothing_and_removal_gives_back_every_byte(text: str, default: bool) -> None:
    wish = Environment("holdfast", BRIDGE.argv, default=default)
    once = apply(text, wish)
    assert apply(once, wish) == once
    assert strip(once) == text
    assert has_entry(once)
    assert not has_entry(text)
    tree = tomllib.loads(once.removeprefix("\ufeff"))
    assert [entry["id"] for entry in tree["environments"]] == (["pod"] if text else []) + ["holdfast"]
    assert tree.get("default") == ("holdfast" if default else None)


def test_another_wish_takes_the_place_of_the_first() -> None:
    assert apply(apply(THEIRS, BRIDGE), REMOTE) == apply(THEIRS, REMOTE)


def test_what_was_added_between_our_marks_stays() -> None:
    mine = '[[environments]]\nid = "mine"\nurl = "ws://127.0.0.1:1"\n'
    text = apply(THEIRS, BRIDGE).replace("# <<< holdfast entry", f"{mine}# <<< holdfast entry")
    assert strip(text) == THEIRS + mine


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[environments]]\nid = "holdfast"\nurl = "ws://127.0.0.1:1"\n', "not ours"),
        ('environments = [{id = "a", url = "ws://127.0.0.1:1"}]\n', "one value"),
        ('default = "none"\n', "default already"),
    ],
)
def test_what_somebody_else_decided_is_not_replaced(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        apply(text, Environment("holdfast", BRIDGE.argv, default=True))
