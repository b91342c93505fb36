"""The decision as rules of OpenCode."""

import json
from collections.abc import Mapping

import pytest

from holdfast.agentconfig.decision import (
    AgentMode,
    AgentName,
    CodexFacts,
    ConfigRequest,
    Egress,
    Writes,
    decide,
)
from holdfast.agentconfig.opencode import AGENTS, differences, environment, flat, notes, render

WISH = ConfigRequest(workspace="/w")


def action(mode: AgentMode, wish: ConfigRequest, tool: str, subject: str = "*") -> str:
    """Of the rules that match, the last."""
    found = "ask"
    for name, pattern, verdict in flat(render(mode, wish)["permission"]):
        start = pattern.removesuffix("*")
        if name in ("*", tool) and (pattern == subject or (pattern != start and subject.startswith(start))):
            found = verdict
    return found


@pytest.mark.parametrize("mode", [AgentMode.READ_ONLY, AgentMode.WORKSPACE, AgentMode.FULL])
def test_nobody_is_ever_asked(mode: AgentMode) -> None:
    assert {verdict for _, _, verdict in flat(render(mode, WISH)["permission"])} <= {"allow", "deny"}


def test_a_tool_that_nobody_knows_is_denied_outside_of_full_access() -> None:
    assert action(AgentMode.WORKSPACE, WISH, "some_mcp_tool") == "deny"
    assert action(AgentMode.FULL, WISH, "some_mcp_tool") == "allow"


def test_read_only_changes_nothing_and_runs_nothing() -> None:
    wish = ConfigRequest(workspace="/w", roots=("/r",), writes=Writes.NOTHING)
    assert action(AgentMode.READ_ONLY, wish, "edit") == "deny"
    assert action(AgentMode.READ_ONLY, wish, "bash") == "deny"
    assert action(AgentMode.READ_ONLY, wish, "external_directory", "/r/x") == "deny"
    assert action(AgentMode.READ_ONLY, wish, "read") == "allow"


def test_a_board_is_the_one_directory_outside() -> None:
    wish = ConfigRequest(workspace="/w", board="/srv/board")
    assert action(AgentMode.WORKSPACE, wish, "external_directory", "/srv/board/x") == "allow"
    assert action(AgentMode.WORKSPACE, wish, "external_directory", "/srv/boards") == "deny"
    assert action(AgentMode.WORKSPACE, wish, "external_directory", "/srv/x") == "deny"


@pytest.mark.parametrize("tool", ["webfetch", "websearch"])
def test_the_web_tools_are_open_with_all_of_the_network_only(tool: str) -> None:
    hosts = ConfigRequest(network=Egress.HOSTS, hosts=("a.example",))
    assert action(AgentMode.WORKSPACE, WISH, tool) == "deny"
    assert action(AgentMode.WORKSPACE, hosts, tool) == "deny"
    assert action(AgentMode.WORKSPACE, ConfigRequest(network=Egress.FULL), tool) == "allow"


def test_the_same_rules_stand_last_in_each_agent() -> None:
    tree = render(AgentMode.WORKSPACE, WISH)
    agents = tree["agent"]
    assert isinstance(agents, Mapping)
    assert [agents[name] for name in AGENTS] == [{"permission": tree["permission"]}] * len(AGENTS)


def test_the_decision_says_that_this_is_no_sandbox() -> None:
    facts = CodexFacts("linux", (1, 18, 33), agent=AgentName.OPENCODE, home="/h")
    for wish in (
        WISH,
        ConfigRequest(writes=Writes.NOTHING),
        ConfigRequest(network=Egress.FULL),
        ConfigRequest(writes=Writes.GIT),
    ):
        decision = decide(facts, wish)
        assert decision.severity == "degraded"
        assert "no sandbox" in decision.reason
        assert any("holdfast exec" in remedy for remedy in decision.remedies)
    assert notes(decide(facts, WISH), WISH)
    assert not notes(decide(facts, ConfigRequest(network=Egress.FULL)), ConfigRequest(network=Egress.FULL))
    some = ConfigRequest(network=Egress.HOSTS, hosts=("b.example",))
    assert len(notes(decide(facts, some), some)) == 2


def test_only_what_the_operator_trusts_is_read_from_a_repository() -> None:
    assert environment("{}", trusted=True) == {"OPENCODE_CONFIG_CONTENT": "{}"}
    assert environment("{}", trusted=False)["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


def listed(*more: tuple[str, str, str], own: bool = True) -> dict[str, object]:
    """An agent as OpenCode prints it: its defaults, our rules, its own directory."""
    rules = [("*", "*", "allow"), *flat(render(AgentMode.WORKSPACE, WISH)["permission"]), *more]
    if own:
        rules.append(("external_directory", "/h/.local/share/opencode/tool-output/*", "allow"))
    return {
        "permission": [dict(zip(("permission", "pattern", "action"), rule, strict=True)) for rule in rules]
    }


def test_what_is_as_decided_does_not_differ() -> None:
    decided = json.loads(json.dumps(render(AgentMode.WORKSPACE, WISH)))
    for own in (True, False):
        assert differences(decided, decided, listed(own=own)) == []


def test_a_rule_after_ours_differs_and_so_does_another_agent_at_the_start() -> None:
    decided = render(AgentMode.WORKSPACE, WISH)
    [late] = differences(decided, decided, listed(("webfetch", "*", "allow")))
    assert late.key == ("agent", "build", "permission")
    [start] = differences(decided, {**decided, "default_agent": "evil"}, listed())
    assert (start.key, start.found) == (("default_agent",), "evil")


def test_rules_in_another_order_differ() -> None:
    decided = render(AgentMode.WORKSPACE, WISH)
    rules = decided["permission"]
    assert isinstance(rules, Mapping)
    turned = dict(reversed(list(rules.items())))
    config = {**decided, "agent": {name: {"permission": turned} for name in AGENTS}}
    assert len(differences(decided, config, listed())) == len(AGENTS)


def test_an_opencode_that_says_nothing_differs() -> None:
    assert len(differences(render(AgentMode.WORKSPACE, WISH), {}, {})) == 3 + len(AGENTS)
