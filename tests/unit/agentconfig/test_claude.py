"""The decision as settings of Claude Code."""

import json

import pytest

from holdfast.agentconfig.claude import arguments, differences, render
from holdfast.agentconfig.decision import (
    AgentMode,
    AgentName,
    CodexFacts,
    ConfigRequest,
    Egress,
    Writes,
)
from holdfast.agentconfig.settings import flatten

FACTS = CodexFacts("linux", (2, 1, 325), True, True, True, agent=AgentName.CLAUDE)
WISH = ConfigRequest(workspace="/w", git=("/w/.git",))


def values(mode: AgentMode, wish: ConfigRequest, facts: CodexFacts = FACTS) -> dict[str, object]:
    return {".".join(key): value for key, value in flatten(render(mode, facts, wish))}


def rules(mode: AgentMode, wish: ConfigRequest, kind: str = "allow") -> set[str]:
    found = values(mode, wish)[f"permissions.{kind}"]
    assert isinstance(found, tuple)
    return set(found)


@pytest.mark.parametrize("mode", [AgentMode.READ_ONLY, AgentMode.WORKSPACE, AgentMode.PROFILE])
def test_outside_of_full_access_nothing_runs_without_the_sandbox(mode: AgentMode) -> None:
    found = values(mode, WISH)
    assert found["sandbox.enabled"] is True
    assert found["sandbox.failIfUnavailable"] is True
    assert found["sandbox.allowUnsandboxedCommands"] is False
    assert found["sandbox.excludedCommands"] == ()
    assert found["sandbox.network.strictAllowlist"] is True
    assert found["permissions.defaultMode"] == "dontAsk"
    assert "Edit" not in rules(mode, WISH)


def test_the_workspace_and_each_root_can_be_edited_and_git_cannot() -> None:
    wish = ConfigRequest(workspace="/w", roots=("/r",), board="/b", git=("/w/.git",))
    found = values(AgentMode.WORKSPACE, wish)
    edits = {rule for rule in rules(AgentMode.WORKSPACE, wish) if rule.startswith("Edit")}
    assert edits == {"Edit(//w/**)", "Edit(//r/**)", "Edit(//b/**)"}
    assert "Edit(//w/.git/**)" in rules(AgentMode.WORKSPACE, wish, "deny")
    assert found["sandbox.filesystem.allowWrite"] == ("/r", "/b")
    assert found["sandbox.filesystem.denyWrite"] == ("/w/.git",)
    assert found["permissions.additionalDirectories"] == ("/r", "/b")


def test_commits_open_git_but_not_what_git_runs() -> None:
    wish = ConfigRequest(workspace="/w", writes=Writes.GIT, git=("/main/.git", "/main/.git/worktrees/w"))
    found = values(AgentMode.PROFILE, wish)
    assert found["sandbox.filesystem.allowWrite"] == wish.git
    assert found["sandbox.filesystem.denyWrite"] == ("/main/.git/hooks", "/main/.git/config")


def test_read_only_closes_the_workspace_for_commands_and_for_tools() -> None:
    found = values(AgentMode.READ_ONLY, ConfigRequest(workspace="/w", roots=("/r",), writes=Writes.NOTHING))
    assert found["sandbox.filesystem.denyWrite"] == ("/w",)
    assert found["sandbox.filesystem.allowWrite"] == ()
    assert "Edit" in rules(AgentMode.READ_ONLY, WISH, "deny")


def test_the_network_is_that_of_the_wish_for_commands_and_for_tools() -> None:
    assert {"WebFetch", "WebSearch"} <= rules(AgentMode.WORKSPACE, WISH, "deny")
    assert values(AgentMode.WORKSPACE, WISH)["sandbox.network.allowedDomains"] == ()
    hosts = ConfigRequest(workspace="/w", network=Egress.HOSTS, hosts=("a.example", "**.b.example"))
    domains = ("a.example", "b.example", "*.b.example")
    assert values(AgentMode.PROFILE, hosts)["sandbox.network.allowedDomains"] == domains
    assert {f"WebFetch(domain:{host})" for host in domains} <= rules(AgentMode.PROFILE, hosts)
    assert "WebSearch" in rules(AgentMode.PROFILE, hosts, "deny")
    full = ConfigRequest(workspace="/w", network=Egress.FULL)
    assert values(AgentMode.WORKSPACE, full)["sandbox.network.allowedDomains"] == ("*",)
    assert {"WebFetch", "WebSearch"} <= rules(AgentMode.WORKSPACE, full)


def test_full_access_has_no_sandbox_and_says_so() -> None:
    found = values(AgentMode.FULL, WISH)
    assert found["sandbox.enabled"] is False
    assert {"Bash", "Edit", "Read"} <= rules(AgentMode.FULL, WISH)


def test_a_host_without_a_proc_of_its_own_gets_the_weaker_sandbox() -> None:
    facts = CodexFacts("linux", (2, 1, 325), True, True, False, agent=AgentName.CLAUDE)
    assert values(AgentMode.WORKSPACE, WISH, facts)["sandbox.enableWeakerNestedSandbox"] is True
    assert values(AgentMode.WORKSPACE, WISH)["sandbox.enableWeakerNestedSandbox"] is False


def test_only_what_the_operator_trusts_is_read_from_a_repository() -> None:
    assert arguments("/f", trusted=True) == ("--settings", "/f")
    assert arguments("/f", trusted=False)[2:] == ("--setting-sources", "user", "--strict-mcp-config")


def told(**more: object) -> dict[str, object]:
    """An answer with what was decided, and a layer of the user's."""
    tree = json.loads(json.dumps(render(AgentMode.WORKSPACE, FACTS, WISH)))
    for path, value in more.items():
        below = tree
        *above, last = path.split("__")
        for name in above:
            below = below[name]
        below[last] = below[last] + value if isinstance(value, list) else value
    user: dict[str, object] = {"source": "userSettings", "settings": {"permissions": {"allow": ["Foo"]}}}
    return {"effective": tree, "sources": [user, {"source": "flagSettings", "settings": tree}]}


def test_what_is_as_decided_does_not_differ_nor_what_forbids_more() -> None:
    decided = render(AgentMode.WORKSPACE, FACTS, WISH)
    assert differences(decided, told()) == []
    assert differences(decided, told(permissions__deny=["Read(//x)"])) == []
    assert differences(decided, told(sandbox__filesystem__denyWrite=["/x"])) == []


def test_a_layer_that_allows_more_differs_and_says_whose_it_is() -> None:
    decided = render(AgentMode.WORKSPACE, FACTS, WISH)
    [rule] = differences(decided, told(permissions__allow=["Foo"]))
    assert (rule.key, rule.origin) == (("permissions", "allow"), "userSettings")
    [off] = differences(decided, told(sandbox__enabled=False))
    assert (off.found, off.origin) == (False, "")
    assert differences(decided, told(sandbox__filesystem__allowWrite=["/x"]))


def test_settings_that_were_dropped_all_differ() -> None:
    decided = render(AgentMode.WORKSPACE, FACTS, WISH)
    assert len(differences(decided, {"effective": {}, "sources": []})) == len(list(flatten(decided)))
    assert differences(decided, {})
