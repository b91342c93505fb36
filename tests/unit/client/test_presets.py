"""Presets of a policy in the SDK: read from this machine when a command starts, not from the workspace."""

from pathlib import Path

import pytest

from holdfast.client.policy import Policy
from holdfast.client.presets import find_presets
from holdfast.errors import UsageError
from holdfast.sandbox.policy.policy import workspace_write


def test_settings_of_the_home_are_read_and_those_of_the_workspace_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, workspace = tmp_path / "home", tmp_path / "home" / "w"
    workspace.mkdir(parents=True)
    monkeypatch.setenv("CARGO_HOME", str(workspace))
    settings = '[registries.a]\nindex = "sparse+https://crates.test/"\n'
    (workspace / "config.toml").write_text(settings, "utf-8")
    wish = workspace_write(tmpdir=False, slash_tmp=False)  # what the command may write is not read
    policy = Policy(wish, str(workspace)).allow_net("cargo")
    with pytest.raises(UsageError, match="nothing outside of the workspace"):
        find_presets(policy, "/")
    (home / "config.toml").write_text(settings, "utf-8")
    monkeypatch.setenv("CARGO_HOME", str(home))
    assert find_presets(policy, "/").wish.hosts.allow == ("crates.test:443",)
    monkeypatch.chdir("/")  # where a daemon is, and everything below it
    assert find_presets(policy, "/").wish.hosts.allow == ("crates.test:443",)
    for granted in (policy.allow_write(home), Policy(wish).allow_net("cargo")):
        with pytest.raises(UsageError, match="nothing outside of the workspace"):
            find_presets(granted, str(home))
    everything = Policy.unrestricted().allow_net("cargo")
    assert find_presets(everything, "/srv").wish.hosts.allow == ("crates.test:443",)
    with pytest.raises(UsageError, match="nothing outside of the workspace"):
        find_presets(everything, str(home))
    assert find_presets(Policy.read_only(), "/") == Policy.read_only()


def test_a_preset_that_does_not_exist_or_needs_a_sandbox_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="there is no such preset"):
        Policy.read_only().allow_net("pypi")
    with pytest.raises(UsageError, match="reaches every host"):
        Policy.full_access().allow_net("pip")


def test_a_limit_is_checked_and_sent() -> None:
    policy = Policy.read_only().allow_host("api.test").limit_net("5M")
    assert policy.context("/").hosts.limits == ["5M"]  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="is no limit"):
        policy.limit_net("fast")
    asked = policy.allow_host("GET https://api.test/v1/").context("/")
    assert asked.hosts.allow == ["api.test", "GET https://api.test/v1/"]  # type: ignore[union-attr]


def test_a_command_without_the_keys_of_a_policy_may_ask_no_more_of_their_hosts() -> None:
    rule = "GET https://api.test/v1/"
    for policy in (
        Policy.read_only().allow_host(rule).keep_secret("A@api.test", "x" * 20),
        Policy.read_only().keep_secret("A@api.test").allow_host(rule),
    ):
        assert policy.without_keys().wish.hosts.allow == (rule,)
    whole = Policy.read_only().allow_host(rule).keep_secret("A@api.test:8443")
    assert whole.without_keys().wish.hosts.allow == (rule, "api.test:8443")
