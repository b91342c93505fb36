"""Agents by name."""

import pytest

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import (
    BUILT_IN,
    SHIPPED,
    KnownAgents,
    ShippedAgents,
    describe_unknown,
    find_agent,
)

RECORD = '[{name}]\nbinary = "ours"\nheadless = ["{{prompt}}"]\n'


def an_agent(name: str, binary: str) -> Agent:
    return Agent(name=name, binary=binary, package=None, versions=None)


def test_a_record_of_the_user_replaces_one_of_ours_and_is_a_record_still() -> None:
    shipped = ShippedAgents({name: RECORD.format(name=name) for name in ("a", "b")})
    known = KnownAgents(shipped, {"a": an_agent("a", "mine")}, {}, "agents.toml")
    assert [find_agent(known, name).binary for name in ("a", "b")] == ["mine", "ours"]
    assert [known.source(name) for name in ("a", "b", "codex")] == ["agents.toml", SHIPPED, BUILT_IN]
    assert [name for name in ("a", "b", "codex", "none") if known.is_record(name)] == ["a", "b"]


def test_a_shipped_record_is_read_when_it_is_asked_for_and_its_program_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    shipped = ShippedAgents({name: RECORD.format(name=name) for name in ("a", "b", "c")})
    known = KnownAgents(shipped, {"b": an_agent("b", "mine")}, {"c": "it is wrong"}, "agents.toml")
    whole = ShippedAgents.__getitem__

    def note(self: ShippedAgents, name: str) -> Agent:
        read.append(name)
        return whole(self, name)

    monkeypatch.setattr(ShippedAgents, "__getitem__", note)
    assert known.find_programs() == {"a": "ours", "b": "mine"}
    assert "a" in known
    assert known["codex"].name == "codex"
    assert read == []
    assert known["a"].binary == "ours"
    assert read == ["a"]
    assert known.get("c") is None, "somebody meant another program"


def test_one_whose_record_is_gone_is_still_somebody() -> None:
    assert describe_unknown("gone").binary == "gone"
