"""A mode as keys and flags."""

from holdfast.agentconfig import recipe
from holdfast.agentconfig.decision import Admin, CodexFacts, ConfigRequest, Mode, Network, Writes

FACTS = CodexFacts("linux", (0, 166, 0))


def test_workspace_write_sets_all_four_keys_also_those_that_are_defaults() -> None:
    decided = recipe.write(Mode.WORKSPACE, FACTS, ConfigRequest())
    table = {item.key[1]: item.value for item in decided.items if item.key[0] == "sandbox_workspace_write"}
    assert table == {
        "network_access": False,
        "writable_roots": (),
        "exclude_slash_tmp": False,
        "exclude_tmpdir_env_var": False,
    }
    assert decided.get("sandbox_mode") == "workspace-write"
    assert decided.get("default_permissions") is None


def test_a_profile_never_stands_beside_a_mode() -> None:
    decided = recipe.write(Mode.PROFILE, FACTS, ConfigRequest(network=Network.HOSTS, hosts=("a.example",)))
    assert decided.get("default_permissions") == "holdfast"
    assert decided.get("sandbox_mode") is None
    assert decided.get("permissions", "holdfast", "network", "domains", "a.example") == "allow"
    assert decided.get("features", "network_proxy") is True


def test_a_profile_that_commits_guards_what_git_would_run() -> None:
    wish = ConfigRequest(writes=Writes.GIT, git=("/r/.git", "/r/.git/worktrees/w"), roots=("/x",))
    decided = recipe.write(Mode.PROFILE, FACTS, wish)
    rights = {item.key[3]: item.value for item in decided.items if item.key[2:3] == ("filesystem",)}
    assert rights["/r/.git"] == rights["/r/.git/worktrees/w"] == rights["/x"] == "write"
    assert rights["/r/.git/hooks"] == rights["/r/.git/config"] == "read"
    assert decided.get("permissions", "holdfast", "network", "enabled") is False


def test_every_name_of_the_project_gets_a_trust_decision() -> None:
    wish = ConfigRequest(projects=("/link", "/real"))
    untrusted = recipe.write(Mode.WORKSPACE, FACTS, wish)
    assert [item.value for item in untrusted.of("trust")] == ["untrusted", "untrusted"]
    trusted = recipe.write(Mode.WORKSPACE, CodexFacts("linux", (0, 166, 0), trusted=True), wish)
    assert [item.value for item in trusted.of("trust")] == ["trusted", "trusted"]


def test_a_key_that_the_version_does_not_know_is_not_written() -> None:
    key = ("features", "unbounded_connection_retries")
    assert recipe.write(Mode.WORKSPACE, CodexFacts("linux", (0, 147, 9)), ConfigRequest()).get(*key) is None
    assert recipe.write(Mode.WORKSPACE, CodexFacts("linux", (0, 148, 0)), ConfigRequest()).get(*key) is False
    assert recipe.write(Mode.WORKSPACE, CodexFacts("linux", None), ConfigRequest()).get(*key) is False


def test_nobody_is_asked_unless_an_administrator_insists() -> None:
    assert recipe.approval(FACTS) == "never"
    assert (
        recipe.approval(CodexFacts("linux", None, admin=Admin(approvals=("never", "on-request")))) == "never"
    )
    assert recipe.approval(CodexFacts("linux", None, admin=Admin(approvals=("on-request",)))) == "on-request"


def test_flags_pin_the_mode_and_all_four_keys() -> None:
    decided = recipe.write(Mode.WORKSPACE, FACTS, ConfigRequest(roots=('/a "b"',), projects=("/p",)))
    assert recipe.flags(Mode.WORKSPACE, decided) == (
        "-s",
        "workspace-write",
        "-c",
        'approval_policy="never"',
        "-c",
        "sandbox_workspace_write.network_access=false",
        "-c",
        'sandbox_workspace_write.writable_roots=["/a \\"b\\""]',
        "-c",
        "sandbox_workspace_write.exclude_slash_tmp=false",
        "-c",
        "sandbox_workspace_write.exclude_tmpdir_env_var=false",
        "--strict-config",
    )


def test_flags_of_a_profile_name_no_mode_since_that_would_win() -> None:
    found = recipe.flags(Mode.PROFILE, recipe.write(Mode.PROFILE, FACTS, ConfigRequest()))
    assert "-s" not in found
    assert 'default_permissions="holdfast"' in found
