"""Presets of a policy in the SDK: read from this machine when a command starts, not from the workspace."""

from pathlib import Path

import pytest

from holdfast.client.policy import Policy
from holdfast.client.presets import find_presets
from holdfast.errors import UsageError


def test_settings_of_the_home_are_read_and_those_of_the_workspace_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, workspace = tmp_path / "home", tmp_path / "home" / "w"
    workspace.mkdir(parents=True)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/nowhere")
    monkeypatch.setenv("CARGO_HOME", str(workspace))
    settings = '[registries.a]\nindex = "sparse+https://crates.test/"\n'
    (workspace / "config.toml").write_text(settings, "utf-8")
    policy = Policy.workspace_write(str(workspace)).allow_net("cargo")
    with pytest.raises(UsageError, match="nothing outside of the workspace"):
        find_presets(policy)
    (home / "config.toml").write_text(settings, "utf-8")
    monkeypatch.setenv("CARGO_HOME", str(home))
    assert find_presets(policy).wish.hosts.allow == ("crates.test:443",)
    plain = Policy.read_only()
    assert find_presets(plain) is plain


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
    with pytest.raises(UsageError, match="on this machine only"):
        policy.allow_host("GET https://api.test/").context("/")
