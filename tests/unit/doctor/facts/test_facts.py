"""Where agents keep their state, and whether somebody logged in, told by names alone."""

from holdfast.doctor.facts.facts import AGENTS, InstalledAgent

BY_NAME = {agent.name: agent for agent in AGENTS}
CODEX = BY_NAME["codex"]


def test_state_is_below_the_home_unless_a_variable_moves_it() -> None:
    assert CODEX.places_in("/h", {}) == ("/h/.codex",)
    assert CODEX.places_in("/h", {"CODEX_HOME": "/x"}) == ("/x",)
    assert BY_NAME["opencode"].places_in("/h", {"CODEX_HOME": "/x"})[0] == "/h/.local/share/opencode"


def test_a_credential_file_or_a_variable_means_logged_in() -> None:
    assert CODEX.logged_in("/h", {}, {"/h/.codex/auth.json"}.__contains__) is True
    assert CODEX.logged_in("/h", {"CODEX_HOME": "/x"}, {"/x/auth.json"}.__contains__) is True
    assert CODEX.logged_in("/h", {"CODEX_HOME": "/x"}, {"/h/.codex/auth.json"}.__contains__) is False
    assert CODEX.logged_in("/h", {"OPENAI_API_KEY": "k"}, set[str]().__contains__) is True
    assert CODEX.logged_in("/h", {}, set[str]().__contains__) is False


def test_where_names_cannot_tell_nothing_is_claimed() -> None:
    assert InstalledAgent("other", ("other", "--version")).logged_in("/h", {}, lambda _: True) is None


def test_every_name_is_there_once() -> None:
    assert len(BY_NAME) == len(AGENTS) >= 7
