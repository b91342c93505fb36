"""Of every decision: full access is never had without a boundary, and not knowing never allows more."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agentconfig.decision import (
    OLDEST,
    Admin,
    AgentMode,
    AgentName,
    Boundary,
    CodexFacts,
    ConfigDecision,
    ConfigRequest,
    Egress,
    Severity,
    Writes,
    decide,
)

ALLOWS = {
    AgentMode.NONE: 0,
    AgentMode.READ_ONLY: 1,
    AgentMode.WORKSPACE: 2,
    AgentMode.PROFILE: 2,
    AgentMode.FULL: 3,
}
PATHS = st.sampled_from(["/srv", "/srv/a", "/opt/w", "/home/u"])
MODES = st.sampled_from(["read-only", "workspace-write", "danger-full-access"])
KNOWN = st.tuples(st.just(0), st.integers(100, 200), st.integers(0, 3))
PROBED = st.sampled_from([True, False, None])
ADMINS = st.builds(
    Admin,
    modes=st.none() | st.lists(MODES).map(tuple),
    approvals=st.none() | st.lists(st.sampled_from(["never", "on-request"])).map(tuple),
    profiles=st.sampled_from([False, False, True]),
)
FACTS = st.builds(
    CodexFacts,
    os=st.sampled_from(["linux", "linux", "linux", "darwin", "windows", "wsl1", ""]),
    version=st.none() | KNOWN | st.sampled_from([(0, 166, 0), (2, 1, 325), (1, 18, 33)]),
    userns=PROBED,
    netns=PROBED,
    proc=PROBED,
    bubblewrap=st.none() | st.tuples(st.just(0), st.integers(8, 13)),
    nested=st.booleans(),
    windows_sandbox=st.sampled_from([None, "elevated", "unelevated", "other"]),
    boundary=st.sampled_from(Boundary),
    trusted=st.booleans(),
    admin=ADMINS,
    home=st.sampled_from(["/home/u/.codex", "/home/u/.codex", "/srv/a/h"]),
    temporary=st.just(("/tmp",)),
    agent=st.sampled_from(AgentName),
)
WISHES = st.builds(
    ConfigRequest,
    network=st.sampled_from(Egress),
    hosts=st.just(("a.example",)),
    writes=st.sampled_from(Writes),
    roots=st.lists(PATHS, max_size=2).map(tuple),
    board=st.none() | PATHS,
    workspace=PATHS,
    projects=st.lists(PATHS, max_size=2, unique=True).map(tuple),
    git=st.lists(PATHS, max_size=1).map(tuple),
)


def is_full(decision: ConfigDecision) -> bool:
    said = (decision.settings.get("sandbox_mode"), decision.settings.get("default_permissions"))
    loose = {"danger-full-access", ":danger-full-access"}
    return decision.mode is AgentMode.FULL or bool(loose & {*said, *decision.flags})


@given(FACTS, WISHES)
def test_without_a_declared_container_or_vm_there_is_no_full_access(
    facts: CodexFacts, wish: ConfigRequest
) -> None:
    undeclared = replace(
        facts, boundary=Boundary.NONE if facts.boundary in "container vm" else facts.boundary
    )
    assert not is_full(decide(undeclared, wish))


@given(FACTS, WISHES)
def test_full_access_is_never_silent(facts: CodexFacts, wish: ConfigRequest) -> None:
    decision = decide(facts, wish)
    if is_full(decision):
        assert decision.notes
        assert decision.reason
        assert facts.boundary in (Boundary.CONTAINER, Boundary.VM)
        assert facts.admin.modes is None or "danger-full-access" in facts.admin.modes


@given(FACTS, WISHES, st.integers(0, 60))
def test_an_unknown_version_never_allows_more(facts: CodexFacts, wish: ConfigRequest, newer: int) -> None:
    major, minor, patch = OLDEST[facts.agent]
    unknown = decide(replace(facts, version=None), wish)
    known = decide(replace(facts, version=(major, minor + newer, patch)), wish)
    assert ALLOWS[unknown.mode] <= ALLOWS[known.mode]
    if unknown.mode is not AgentMode.FULL:
        assert unknown.severity is not Severity.OK


@given(FACTS, WISHES)
def test_a_probe_that_could_not_be_made_never_gives_full_access(
    facts: CodexFacts, wish: ConfigRequest
) -> None:
    unseen = decide(replace(facts, userns=None, netns=None, proc=None), wish)
    seen = decide(replace(facts, userns=True, netns=True, proc=True), wish)
    assert ALLOWS[unseen.mode] <= ALLOWS[seen.mode]


@given(FACTS, WISHES)
def test_network_and_roots_are_never_more_than_was_asked_for(facts: CodexFacts, wish: ConfigRequest) -> None:
    decision = decide(facts, wish)
    if decision.mode is AgentMode.FULL:
        return
    opened = decision.settings.get("sandbox_workspace_write", "network_access")
    assert not opened or wish.network is Egress.FULL
    roots = decision.settings.get("sandbox_workspace_write", "writable_roots")
    assert roots is None or roots == wish.writable
    enabled = decision.settings.get("permissions", "holdfast", "network", "enabled")
    assert not enabled or wish.network is not Egress.NONE


@given(FACTS, WISHES)
def test_no_mode_is_chosen_that_cannot_work_or_is_not_allowed(facts: CodexFacts, wish: ConfigRequest) -> None:
    decision = decide(facts, wish)
    if decision.mode in (AgentMode.NONE, AgentMode.FULL):
        return
    assert facts.os != "linux" or facts.userns is not False
    assert facts.os != "linux" or facts.netns is not False or wish.network is Egress.FULL
    needed = "read-only" if decision.mode is AgentMode.READ_ONLY else "workspace-write"
    assert facts.admin.modes is None or needed in facts.admin.modes or facts.admin.profiles
