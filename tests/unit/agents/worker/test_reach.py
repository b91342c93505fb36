"""What a worker has of the network: its provider's hosts, what was asked for, and what is said of less."""

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.catalog.catalog import CATALOG, HERMES, SHELL
from holdfast.agents.catalog.claude import CLAUDE
from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.catalog.gemini import QWEN
from holdfast.agents.worker.launching import WorkerSpec, prepare
from holdfast.agents.worker.reach import (
    UNNAMED,
    WorkerReach,
    decide_reach,
    find_bases,
    find_unnamed,
    may_need_names,
    try_host,
)
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.wire.permissions import AllowedHosts
from holdfast.wire.processes import EnforcementReport, SecretKey
from tests.support.rows import every_row

HOSTS = CODEX.reach.hosts if CODEX.reach is not None else ()
NAMED = AllowedHosts(["a.test"], ["x.a.test"], True)
ASKED = HostWish(("a.test",), ("x.a.test",), True)


def a_wish(**more: object) -> WorkerSpec:
    values: dict[str, object] = {"agent": "codex", "cwd": "/project", "env": {}}
    return WorkerSpec(**{**values, **more})  # type: ignore[arg-type]  # a test that errs here fails here


@every_row(
    ("wish", "agent", "own", "wanted"),
    [
        ({}, CODEX, False, WorkerReach(hosts=HostWish(HOSTS))),
        ({}, CODEX, True, WorkerReach(hosts=HostWish(HOSTS))),
        ({"network": True}, CODEX, True, WorkerReach(whole=True, whole_commands=True)),
        ({"unconfined": True}, CODEX, False, WorkerReach(whole=True, whole_commands=True)),
        ({"network": False}, CODEX, False, WorkerReach()),
        ({"network": False}, CODEX, True, WorkerReach(hosts=HostWish(HOSTS))),
        ({"network": False, "hosts": NAMED}, CODEX, False, WorkerReach(hosts=ASKED, commands=ASKED)),
        (
            {"hosts": NAMED},
            CODEX,
            True,
            WorkerReach(hosts=HostWish((*HOSTS, "a.test"), ("x.a.test",), True), commands=ASKED),
        ),
        ({}, SHELL, False, WorkerReach(whole=True, whole_commands=True)),
        ({"network": False}, SHELL, False, WorkerReach()),
        ({}, HERMES, False, WorkerReach(whole=True, whole_commands=True, lost=UNNAMED)),
        ({"network": True}, HERMES, False, WorkerReach(whole=True, whole_commands=True)),
        ({"hosts": NAMED}, HERMES, False, WorkerReach(hosts=ASKED, commands=ASKED)),
        ({"hosts": NAMED}, SHELL, False, WorkerReach(hosts=ASKED, commands=ASKED)),
        (
            {"base": "http://127.0.0.1:9/v1"},
            CODEX,
            False,
            WorkerReach(hosts=HostWish(("127.0.0.1:9",))),
        ),
        (
            {"base": "https://llm.corp"},
            CODEX,
            False,
            WorkerReach(hosts=HostWish(("llm.corp:443",), own=("llm.corp",))),
        ),
    ],
)
def test_what_it_has(wish: dict[str, object], agent: object, own: bool, wanted: WorkerReach) -> None:
    assert decide_reach(a_wish(**wish), agent, own_sandbox=own) == wanted  # type: ignore[arg-type]


@every_row(
    ("wish", "agent", "raised"),
    [
        ({"network": True, "hosts": NAMED}, CODEX, UsageError),
        ({"unconfined": True, "hosts": NAMED}, CODEX, UsageError),
        ({"hosts": AllowedHosts(["a b"])}, CODEX, UsageError),
        ({"hosts": AllowedHosts([], ["a.test"])}, SHELL, UsageError),
        ({"hosts": AllowedHosts([], ["a.test"]), "network": False}, CODEX, UsageError),
        ({"hosts": NAMED, "base": "http://10.0.0.1"}, CODEX, UsageError),
    ],
)
def test_what_cannot_be_meant_is_refused(
    wish: dict[str, object], agent: object, raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        decide_reach(a_wish(**wish), agent)  # type: ignore[arg-type]


def test_where_no_name_can_be_enforced_what_was_asked_for_fails_and_what_was_not_is_said() -> None:
    why = "bwrap cannot do hosts-by-name"
    with pytest.raises(SandboxUnavailable, match=why):
        decide_reach(a_wish(hosts=NAMED), CODEX, unnamed=why)
    found = decide_reach(a_wish(), CODEX, own_sandbox=True, unnamed=why)
    assert (found.whole, found.lost, found.commands_any) == (True, why, False)
    assert decide_reach(a_wish(network=False), CODEX, unnamed=why) == WorkerReach()
    literal = decide_reach(a_wish(base="http://10.0.0.1:80"), CODEX)
    assert literal.whole
    assert "10.0.0.1" in literal.lost


def test_a_denied_host_stays_denied_among_those_of_the_provider() -> None:
    found = decide_reach(a_wish(hosts=AllowedHosts([], ["chatgpt.com"])), CODEX)
    assert (found.hosts.allow, found.hosts.deny) == (HOSTS, ("chatgpt.com",))


def test_addresses_of_providers_are_read_where_their_user_writes_them(tmp_path: Path) -> None:
    settings = tmp_path / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('[model_providers.x]\nbase_url = "https://x.test/v1"\n', "utf-8")
    environment = {"OPENAI_BASE_URL": "https://v.test"}
    assert find_bases(CODEX, environment, home=str(tmp_path)) == ["https://v.test", "https://x.test/v1"]
    assert find_bases(CODEX, environment, home=None) == ["https://v.test"]
    (tmp_path / ".claude").mkdir()
    claude = {"env": {"ANTHROPIC_BASE_URL": "https://c.test"}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(claude), "utf-8")
    assert find_bases(CLAUDE, {}, home=str(tmp_path)) == ["https://c.test"]
    (tmp_path / ".qwen").mkdir()
    (tmp_path / ".qwen" / ".env").write_text("# no\nexport OPENAI_BASE_URL='https://q.test' # x\n", "utf-8")
    listed = {"modelProviders": {"openai": [{"id": "m", "baseUrl": "https://l.test"}]}}
    (tmp_path / ".qwen" / "settings.json").write_text(json.dumps(listed), "utf-8")
    assert find_bases(QWEN, {}, home=str(tmp_path)) == ["https://l.test", "https://q.test"]


@pytest.mark.parametrize("writable", ["work", "work/.codex", ""])
def test_what_the_worker_could_have_written_says_nothing(writable: str, tmp_path: Path) -> None:
    """Its workspace is the home, or holds the CLI's settings by a variable or a link."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / ".codex"):
        folder.mkdir(parents=True)
    (work / ".codex" / "config.toml").write_text('openai_base_url = "https://evil.test"\n', "utf-8")
    (home / ".codex").symlink_to(work / ".codex")
    places = [str(tmp_path / writable)]
    assert find_bases(CODEX, {}, home=str(home), writable=places) == []
    assert find_bases(CODEX, {"CODEX_HOME": str(work / ".codex")}, home="/none", writable=places) == []
    assert find_bases(CODEX, {}, home=str(home), writable=[str(tmp_path / "other")]) == ["https://evil.test"]


class _Server:
    """An environment whose server enforces as it is told."""

    def __init__(self, network: list[str] | None, failure: Exception | None = None) -> None:
        told = None if network is None else EnforcementReport("namespaces", [], [], network=network)
        self.enforcement, self._failure = told, failure

    async def start(self, *_: object, **__: object) -> "_Server":
        if self._failure is not None:
            raise self._failure
        return self

    async def wait(self) -> None:
        return None


@every_row(
    ("network", "failure", "why"),
    [
        (["by name"], None, None),
        ([], None, "does not say"),
        (None, None, "does not say"),
        (None, SandboxUnavailable("bwrap cannot do hosts-by-name"), "bwrap"),
    ],
)
def test_whether_names_can_be_enforced_is_tried(
    network: list[str] | None, failure: Exception | None, why: str | None
) -> None:
    found = asyncio.run(find_unnamed(_Server(network, failure)))  # type: ignore[arg-type]
    assert found is None if why is None else why in (found or "")


def test_it_is_tried_for_those_who_need_it() -> None:
    assert may_need_names(a_wish(), CODEX)
    assert may_need_names(a_wish(hosts=NAMED), SHELL)
    for wish in (a_wish(network=True), a_wish(unconfined=True)):
        assert not may_need_names(wish, CODEX)
    assert not may_need_names(a_wish(), replace(CODEX, reach=None))


def test_a_provider_that_is_not_there_is_told_as_what_it_is() -> None:
    async def try_all() -> list[dict[str, str] | None]:
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        there = HostWish((f"127.0.0.1:{port}", f"p.test:{port}"), addresses=(("p.test", "127.0.0.1"),))
        own = HostWish(there.allow, addresses=there.addresses, own=("p.test",))
        found = [
            await try_host(there, "127.0.0.1", port),
            await try_host(own, "p.test", port),
            await try_host(there, "p.test", port),
            await try_host(there, "other.test", port),
        ]
        server.close()
        return [*found, await try_host(there, "127.0.0.1", port)]

    here, named, private, other, gone = asyncio.run(try_all())
    assert (here, named) == (None, None)
    assert private is not None
    assert "not public" in private["errno"]
    assert other == {"step": "rule", "errno": "not allowed"}
    assert gone == {"step": "connect", "errno": "ECONNREFUSED"}


@pytest.mark.parametrize("network", [None, False])
def test_a_key_opens_no_host_that_the_worker_does_not_reach(network: bool | None, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ANTHROPIC_API_KEY": "sk-ant-" + "x1Y2z3" * 8}
    wish = WorkerSpec(agent="claude", cwd=str(tmp_path), env=env, prompt="p", network=network)
    ready = prepare(wish, state=str(tmp_path / "state"))
    allowed = {rule.partition(":")[0] for rule in ready.policy.wish.hosts.allow}
    assert CLAUDE.reach is not None
    assert allowed == (set(CLAUDE.reach.hosts) if network is None else set())


def test_the_keys_of_a_record_are_for_hosts_that_its_workers_reach() -> None:
    for agent in CATALOG.values():
        for name, hosts in agent.key_hosts.items():
            assert agent.reach is None or {*hosts} <= {*agent.reach.hosts}, (agent.name, name)


def a_worker(home: Path, **more: Any) -> WorkerSpec:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CARGO_HOME": str(home / ".cargo")}
    return WorkerSpec(agent="shell", cwd=str(home / "work"), env=env, prompt="p", private_tmp=True, **more)


def test_the_hosts_of_a_preset_are_read_from_what_the_worker_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / ".cargo").mkdir()
    settings = '[registries.a]\nindex = "sparse+https://crates.test/"\n'
    (tmp_path / ".cargo" / "config.toml").write_text(settings, "utf-8")
    asked = AllowedHosts(["GET https://a.test/v1/"], limits=["5M"])
    ready = prepare(a_worker(tmp_path, presets=["cargo"], hosts=asked), state=str(tmp_path / "state"))
    assert ready.policy.wish.hosts.allow == ("GET https://a.test/v1/", "crates.test:443")
    assert ready.policy.wish.hosts.limits == ("5M",)
    assert ready.presets == (f"cargo: crates.test:443, from {tmp_path}/.cargo/config.toml",)
    for writable in (str(tmp_path / ".cargo"), str(tmp_path)):
        with pytest.raises(UsageError, match="nothing outside of the workspace"):
            prepare(a_worker(tmp_path, presets=["cargo"], writable=[writable]), state=str(tmp_path / "state"))
    planted = a_worker(tmp_path, presets=["cargo"])
    planted.env["CARGO_HOME"] = planted.cwd
    (tmp_path / "work" / "config.toml").write_text(settings, "utf-8")
    with pytest.raises(UsageError, match="nothing outside of the workspace"):
        prepare(planted, state=str(tmp_path / "state"))


@pytest.mark.parametrize("more", [{"network": True}, {"unconfined": True}])
def test_a_preset_is_refused_where_every_host_is_reached(more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="every host is reached"):
        prepare(a_worker(tmp_path, presets=["pip"], **more), state=str(tmp_path / "state"))


def test_a_key_lifts_no_rule_about_requests_also_not_for_what_has_no_key(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    key, rule = SecretKey("TOKEN", "x1Y2z3" * 8, ["api.test:443"]), "GET https://api.test/v1/"
    wish = a_worker(tmp_path, hosts=AllowedHosts([rule]), keys=[key])
    ready = prepare(wish, state=str(tmp_path / "state"))
    assert ready.reach.commands.allow == (rule,)
    assert ready.policy.without_keys().wish.hosts.allow == (rule,)
