"""What the commands of a CLI that keeps its own sandbox may have, and when it cannot keep it."""

import json

import pytest

from holdfast.agents.catalog.agent import launch, state_files
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.ownsandbox import OwnSandboxPlaces, find_obstacle, judge_version, read_version
from holdfast.agents.worker.reach import WorkerReach, decide_reach
from holdfast.client.policy import Policy
from holdfast.confine.permissions import policy_of
from holdfast.sandbox.policy.narrowing import find_excess
from holdfast.sandbox.policy.policy import Access, Network, Where, bind
from holdfast.wire.permissions import AllowedHosts
from tests.support.rows import every_row

PLACES = OwnSandboxPlaces("/run/holdfast/runs/w", "/h/workers/w/tmp", "token")
WHERE = Where("/project", ("/project",), "/h/workers/w/tmp")
STATE = "/h/workers/w/state"
OWN = PLACES.policy(Policy.workspace_write("/project").allow_write(STATE).allow_socket("/run/board.sock"))


def a_wish(**more: object) -> WorkerSpec:
    values: dict[str, object] = {
        "agent": "codex",
        "cwd": "/project",
        "env": {"OPENAI_API_KEY": "k", "A": "1"},
    }
    return WorkerSpec(**{**values, **more})  # type: ignore[arg-type]  # a test that errs here fails here


def reach_of(wish: WorkerSpec) -> WorkerReach:
    return decide_reach(wish, CODEX, own_sandbox=True)


def test_the_cli_reaches_its_model_and_its_executor() -> None:
    assert CODEX.reach is not None
    for network in (None, False):
        own = reach_of(a_wish(network=network)).apply(OWN)
        assert (own.wish.network, own.wish.hosts.allow) == (Network.OFF, CODEX.reach.hosts)
    assert OWN.wish.sockets == ("/run/board.sock", "/run/holdfast/runs/w/exec.sock")


@pytest.mark.parametrize(
    ("network", "hosts", "reached"),
    [(True, [], ()), (False, [], ()), (None, [], ()), (None, ["a.test:81"], ("a.test:81",))],
)
def test_its_commands_have_no_more_than_it_has_and_neither_its_state_nor_its_keys(
    network: bool | None, hosts: list[str], reached: tuple[str, ...]
) -> None:
    wish = a_wish(network=network, hosts=AllowedHosts(hosts) if hosts else None)
    own = reach_of(wish).apply(OWN)
    made = PLACES.executor(CODEX, wish, own, STATE, reach_of(wish))
    ceiling = bind(policy_of(made.sandbox), WHERE)
    assert find_excess(ceiling, bind(own.wish, WHERE)) is None
    assert ceiling.network is (Network.ON if network else Network.OFF)
    assert ceiling.hosts.allow == reached
    assert ceiling.sockets == ("/run/board.sock",)
    for hidden in (f"{STATE}/auth.json", "/run/holdfast/runs/w/exec.key"):
        assert not ceiling.explain(hidden, Access.READ).allowed
    for writable in ("/project/a", "/h/workers/w/tmp/a"):
        assert ceiling.explain(writable, Access.WRITE).allowed
    assert made.env == {"A": "1", "TMPDIR": "/h/workers/w/tmp"}


def test_the_settings_lead_to_the_executor_and_to_nothing_else() -> None:
    wish = a_wish(writable=["/srv"])
    words = PLACES.words(wish, reach_of(wish))
    [text] = state_files(CODEX, base=None, model="", mcp=(), own_sandbox=words).values()
    assert "include_local = false" in text
    assert json.dumps("/run/holdfast/runs/w/exec.sock") in text
    given = launch(CODEX, state="/s", prompt="p", unattended=True, mcp=["m"], own_sandbox=words).arguments
    assert "--dangerously-bypass-approvals-and-sandbox" not in given
    assert 'sandbox_workspace_write={network_access=false,writable_roots=["/srv"]}' in given
    assert 'web_search="disabled"' in given
    assert 'mcp_servers.holdfast.cwd="/project"' in given


def test_with_the_network_its_commands_have_it_unless_somebody_can_be_asked() -> None:
    wish = a_wish(network=True)
    words = PLACES.words(wish, reach_of(wish))
    assert PLACES.words(a_wish(), reach_of(a_wish(hosts=AllowedHosts(["a.test"])))) == words
    alone = launch(CODEX, state="/s", prompt="p", unattended=True, own_sandbox=words).arguments
    asking = launch(CODEX, state="/s", unattended=False, own_sandbox=words).arguments
    assert "sandbox_workspace_write={network_access=true,writable_roots=[]}" in alone
    assert "sandbox_workspace_write={network_access=false,writable_roots=[]}" in asking
    assert 'web_search="disabled"' not in (*alone, *asking)


@every_row(
    ("agent", "wish"),
    [
        ("claude", {}),
        ("codex", {"own_sandbox": False}),
        ("codex", {"unconfined": True}),
        ("codex", {"relocate": False}),
        ("codex", {"acp": True}),
    ],
)
def test_where_it_cannot_be_had_there_is_a_reason(agent: str, wish: dict[str, object]) -> None:
    assert find_obstacle(CATALOG[agent], a_wish(**wish))
    assert find_obstacle(CODEX, a_wish()) is None


@every_row(
    ("said", "version", "able"),
    [
        ("codex-cli 0.166.0\n", (0, 166, 0), True),
        ("codex-cli 0.130.0", (0, 130, 0), False),
        ("1.0", (1, 0), True),
        ("none", None, False),
        ("", None, False),
    ],
)
def test_an_old_version_cannot(said: str, version: tuple[int, ...] | None, able: bool) -> None:
    assert CODEX.own_sandbox is not None
    assert read_version(said) == version
    assert (judge_version(CODEX.own_sandbox, version) is None) is able
