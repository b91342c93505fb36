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
        "the host api.openai.com",
        "the host chatgpt.com",
        "the host auth.openai.com",
        "the variable OPENAI_API_KEY",
    ]
    assert find_excess(BUILTIN["codex"], BUILTIN["script"], {"OPENAI_API_KEY"}) == []


def test_a_cli_that_reaches_its_model_is_more_than_a_script_without_a_network() -> None:
    codex = a_profile(agent="codex")
    hosts = [f"the host {name}" for name in ("api.openai.com", "chatgpt.com", "auth.openai.com")]
    assert find_excess(a_profile(), codex, ()) == hosts
    assert find_excess(codex, codex, ()) == []
    assert find_excess(a_profile(network=True), codex, ()) == []
    assert find_excess(a_profile(), a_profile(agent="claude"), ()) == []


@every_row(
    ("parent", "child", "more"),
    [
        ({"hosts": {"a.test": "allow"}}, {"hosts": {"a.test": "allow"}}, []),
        ({"hosts": {"a.test": "allow"}}, {"hosts": {"b.test": "allow"}}, ["the host b.test"]),
        ({"hosts": {"*.test": "allow"}}, {"hosts": {"b.test": "allow"}}, ["the host b.test"]),
        (
            {"hosts": {"**.test": "allow", "b.test": "deny"}},
            {"hosts": {"**.test": "allow"}},
            ["the host b.test, which is denied"],
        ),
        (
            {"hosts": {"a.test": "allow"}},
            {"hosts": {"a.test": "allow", "private": True}},
            ["hosts at addresses that are not public"],
        ),
        (
            {"hosts": {"a.test": "allow"}},
            {"hosts": {"a.test": "allow", "addresses": {"a.test": "192.0.2.7"}}},
            ["the host a.test elsewhere"],
        ),
        ({"hosts": {"presets": ["pip"]}}, {"hosts": {"presets": ["pip", "npm"]}}, ["the hosts of npm"]),
        ({"hosts": {"presets": ["pip"]}}, {"hosts": {"presets": ["pip"]}}, []),
        (
            {"hosts": {"GET https://a.test/v1/": "allow"}},
            {"hosts": {"GET https://a.test/": "allow"}},
            ["the host GET https://a.test/"],
        ),
        (
            {"hosts": {"*.test": "allow", "GET https://a.test/": "allow", "b.test": "allow"}},
            {"hosts": {"*.test": "allow", "b.test": "allow"}},
            ["all of the host a.test:443"],
        ),
        (
            {"hosts": {"GET http://a.test/": "allow", "secrets": {"K": "http://a.test:80"}}},
            {"hosts": {"secrets": {"K": "http://a.test:80"}}},
            ["the host a.test:80", "all of the host a.test:80"],
        ),
        (
            {"hosts": {"a.test": "allow", "limits": ["5M"]}},
            {"hosts": {"a.test": "allow"}},
            ["no limit of 5M on hosts"],
        ),
        ({"hosts": {"a.test": "allow"}}, {"network": None}, ["the network"]),
        ({"network": None, "ask_network": True}, {"network": None}, ["the network"]),
        ({"network": None, "ask_network": True}, {"network": None, "ask_network": 30.0}, []),
        ({"network": False}, {"network": None, "ask_network": True}, []),  # a person decides about each
        ({"network": True}, {"hosts": {"a.test": "allow"}}, []),
        ({"agent": "codex", "network": None}, {"agent": "claude", "network": False}, []),
        (
            {"agent": "codex", "network": None, "provider": "https://p.test/v1"},
            {"agent": "codex", "network": None, "provider": "https://q.test:8443"},
            ["the host q.test:8443"],
        ),
        (
            {"agent": "codex", "network": None, "provider": "https://p.test"},
            {"agent": "codex", "network": None, "provider": "http://10.0.0.1:80"},
            ["the host 10.0.0.1"],
        ),
        (
            {"agent": "codex", "network": None, "variables": {"OPENAI_BASE_URL": "https://p.test"}},
            {"agent": "codex", "network": None, "variables": {"OPENAI_BASE_URL": "https://q.test"}},
            ["the host q.test:443", "its own OPENAI_BASE_URL"],
        ),
    ],
)
def test_a_child_has_no_host_that_its_parent_lacks(
    parent: dict[str, object], child: dict[str, object], more: list[str]
) -> None:
    assert find_excess(a_profile(**parent), a_profile(**child), ()) == more
