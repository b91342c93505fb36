"""Which keys of a worker stay outside, and what is said of those that enter."""

from typing import Final

import pytest

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.keptkeys import KEPT, decide_keys
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import parse_secret
from holdfast.wire.processes import SecretKey
from tests.support.rows import every_row

KEY: Final = "sk-proj-kV9wX2yZ4aB6cD8eF1gH"
MODEL_KEYS: Final = {
    "codex": ("OPENAI_API_KEY", "api.openai.com"),
    "claude": ("ANTHROPIC_API_KEY", "api.anthropic.com"),
    "gemini": ("GEMINI_API_KEY", "generativelanguage.googleapis.com"),
    "qwen": ("DASHSCOPE_API_KEY", "dashscope.aliyuncs.com"),
    "opencode": ("OPENROUTER_API_KEY", "openrouter.ai"),
}


@every_row("name", MODEL_KEYS, ids=str)
def test_a_key_of_its_cli_stays_outside_for_its_providers_host(name: str) -> None:
    variable, host = MODEL_KEYS[name]
    env = {variable: KEY, "PATH": "/bin"}
    keys = decide_keys(CATALOG[name], env)
    [kept] = keys.kept
    assert (kept.name, kept.value, host in kept.hosts) == (variable, KEY, True)
    assert (keys.hide(env), keys.remove(env)) == ({variable: KEPT, "PATH": "/bin"}, {"PATH": "/bin"})
    assert (keys.values, keys.entering) == ((KEY,), ())


@every_row("name", [name for name, agent in CATALOG.items() if agent.key_hosts], ids=str)
def test_every_host_of_a_key_is_one_that_its_worker_reaches(name: str) -> None:
    agent = CATALOG[name]
    assert agent.reach is not None
    assert {*agent.key_hosts} <= {*agent.keys}
    for variable, hosts in agent.key_hosts.items():
        assert {*hosts} <= {*agent.reach.hosts}
        assert [parse_secret(f"{variable}@{host}").host for host in hosts] == list(hosts)


def test_a_key_follows_its_user_to_another_address() -> None:
    env = {"OPENAI_API_KEY": KEY}
    [kept] = decide_keys(
        CATALOG["codex"], env, bases=["https://gate.example/v1", "http://127.0.0.1:11434"]
    ).kept
    assert kept.hosts == ["api.openai.com", "gate.example:443", "http://127.0.0.1:11434"]


def test_the_key_of_another_provider_is_for_that_alone() -> None:
    provider = {"HOLDFAST_PROVIDER_KEY": KEY}
    keys = decide_keys(CATALOG["codex"], {}, provider=provider, base="http://provider.test:8080")
    [kept] = keys.kept
    assert (kept.name, kept.hosts) == ("HOLDFAST_PROVIDER_KEY", ["http://provider.test:8080"])


@every_row(
    ("value", "base", "why_not", "said"),
    [
        ("short", None, "", "fewer than 8 characters"),
        (KEY, "http://10.0.0.1:80", "", "its host is not known"),
        (KEY, "https://127.0.0.1:8443", "", "for an address"),
        (KEY, None, "it has the whole network", "it has the whole network"),
    ],
    ids=str,
)
def test_what_cannot_stay_outside_enters_and_that_is_said(
    value: str, base: str | None, why_not: str, said: str
) -> None:
    env = {"OPENAI_API_KEY": value}
    keys = decide_keys(CATALOG["codex"], env, base=base, why_not=why_not)
    assert not keys.kept
    assert [("$OPENAI_API_KEY enters" in line, said in line) for line in keys.entering] == [(True, True)]
    assert KEY not in "".join(keys.entering)
    assert keys.hide(env) == env


def test_a_login_enters_and_that_is_said() -> None:
    keys = decide_keys(CATALOG["codex"], {}, logins=["/home/me/.codex/auth.json"])
    assert keys.entering == ("its login in /home/me/.codex/auth.json enters its sandbox, as it is",)


def test_what_was_asked_for_is_kept_or_nothing_is_started() -> None:
    given = [SecretKey("OPENAI_API_KEY", KEY, ["only.example"]), SecretKey("GIT", KEY[::-1], ["git.example"])]
    keys = decide_keys(CATALOG["codex"], {"OPENAI_API_KEY": KEY}, given=given)
    assert [(key.name, key.hosts) for key in keys.kept] == [
        ("OPENAI_API_KEY", ["only.example"]),
        ("GIT", ["git.example"]),
    ]
    with pytest.raises(UsageError, match="it has the whole network"):
        decide_keys(CATALOG["codex"], {}, given=given, why_not="it has the whole network")
