"""Agents by name."""

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.lookup import BUILT_IN, SHIPPED, KnownAgents, describe_unknown, find_agent
from holdfast.agents.catalog.userrecords import Records


def an_agent(name: str, binary: str) -> Agent:
    return Agent(name=name, binary=binary, package=None, versions=None)


def test_a_record_of_the_user_replaces_one_of_ours_and_is_a_record_still() -> None:
    shipped = Records({name: an_agent(name, "ours") for name in ("a", "b")}, {})
    known = KnownAgents(shipped, Records({"a": an_agent("a", "mine")}, {}), "agents.toml")
    assert [find_agent(known, name).binary for name in ("a", "b")] == ["mine", "ours"]
    assert [known.source(name) for name in ("a", "b", "codex")] == ["agents.toml", SHIPPED, BUILT_IN]
    assert [name for name in ("a", "b", "codex", "none") if known.is_record(name)] == ["a", "b"]


def test_one_whose_record_is_gone_is_still_somebody() -> None:
    assert describe_unknown("gone").binary == "gone"
