"""Policies as values: what each method adds, what is refused, and how it travels."""

from pathlib import Path, PurePosixPath

import msgspec
import pytest

from holdfast.client.policy import Policy
from holdfast.errors import UsageError
from holdfast.sandbox.policy import policy
from holdfast.sandbox.policy.policy import Access, At, Glob, Network, Place, PolicyKind, Rule, Special
from holdfast.sandbox.policy.policy import Policy as Wish
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import Disabled, External, Managed, SandboxContext, Unrestricted
from tests.support.rows import every_row

TOML = """
network = "on"
[filesystem]
":root" = "read"
":workspace" = "write"
"./build" = "deny"
"~/.ssh" = "deny"
"**/.env" = "deny"
"""
PROFILE = Wish(
    (
        Rule(Special(Place.ROOT), Access.READ),
        Rule(Special(Place.PROJECT_ROOTS), Access.WRITE),
        Rule(Special(Place.PROJECT_ROOTS, "build"), Access.DENY),
        Rule(At("/home/me/.ssh"), Access.DENY),
        Rule(Glob("**/.env"), Access.DENY),
    ),
    Network.ON,
)


def wire(context: SandboxContext) -> object:
    return msgspec.to_builtins(context, enc_hook=lambda value: value.uri)


def test_presets_are_those_of_the_sandbox() -> None:
    assert Policy.read_only() == Policy(policy.read_only())
    assert Policy.full_access() == Policy(policy.full_access())
    assert Policy.unrestricted() == Policy(Wish(None, Network.OFF))
    assert Policy.workspace_write("/srv/p") == Policy(policy.workspace_write(), "/srv/p")
    assert Policy.workspace_write("/srv/p", network=True).wish.network is Network.ON


def test_rules_are_added_to_another_policy_and_the_first_stays_as_it_was() -> None:
    first = Policy.read_only()
    second = (
        first.allow_write("/srv/out").allow_read(PurePosixPath("/opt/x")).deny("/etc/shadow").deny("**/.env")
    )
    assert first == Policy.read_only()
    assert (second.wish.rules or ())[1:] == (
        Rule(At("/srv/out"), Access.WRITE),
        Rule(At("/opt/x"), Access.READ),
        Rule(At("/etc/shadow"), Access.DENY),
        Rule(Glob("**/.env"), Access.DENY),
    )


def test_policies_that_say_the_same_are_equal_and_hash_alike() -> None:
    one = Policy.workspace_write("/srv/p").allow_write("/srv/out").deny("*.pem")
    two = (
        Policy.workspace_write(Path("/srv/./p/"))
        .allow_write("/srv//out/")
        .allow_write("/srv/out")
        .deny("*.pem")
    )
    assert one == two
    assert len({one, two, Policy.read_only()}) == 2


@every_row("path", ["srv/out", "~/x", "file:///srv", "/a\0b", ".env", ""])
def test_a_path_must_be_absolute_and_plain(path: str) -> None:
    policy = Policy.read_only()
    for use in (policy.allow_read, policy.allow_write, policy.deny, Policy.workspace_write):
        with pytest.raises(UsageError) as caught:
            use(path)
        assert caught.value.remedy


def test_a_pattern_that_is_none_is_refused_here() -> None:
    with pytest.raises(UsageError):
        Policy.read_only().deny("*" * 5000)


def test_only_a_denial_may_be_a_pattern() -> None:
    assert Policy.read_only().allow_write("/srv/*").wish.rules == (
        Rule(Special(Place.ROOT), Access.READ),
        Rule(At("/srv/*"), Access.WRITE),
    )


def test_the_network_of_a_policy_can_be_switched() -> None:
    policy = Policy.workspace_write("/srv/p")
    assert policy.with_network(True) == Policy.workspace_write("/srv/p", network=True)
    assert policy.with_network(True).with_network(False) == policy


def test_full_access_without_network_or_without_a_path_is_a_sandbox() -> None:
    free = Policy.full_access()
    assert not free.confines
    assert free.with_network(True) == free.allow_write("/x") == free
    assert free.with_network(False) == Policy.unrestricted()
    hidden = free.deny("/secret")
    assert hidden.confines
    assert hidden.wish.kind is PolicyKind.MANAGED
    assert hidden.wish.network is Network.ON


def test_a_profile_is_read_from_text_or_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(TOML, "utf-8")
    for source in (TOML, tmp_path / "p.toml"):
        assert Policy.from_toml(source, home="/home/me", root="/srv/p") == Policy(PROFILE, "/srv/p")
    assert Policy.from_toml(TOML, home="/home/me").root is None


@every_row(
    "text", [TOML, "policy.toml", "=", "[filesystem]\n'/x' = 'all'", "[files]", "filesystem = 1", "x = 1"]
)
def test_a_profile_that_is_wrong_or_needs_a_home_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Policy.from_toml(text)


def test_a_file_name_instead_of_its_text_gets_a_remedy() -> None:
    with pytest.raises(UsageError) as caught:
        Policy.from_toml("policy.toml")
    assert "pathlib" in (caught.value.remedy or "")


def test_a_restricted_policy_travels_as_the_reference_sends_it() -> None:
    policy = Policy.workspace_write("/srv/p").deny("**/.env").allow_write("/srv/o t")
    special = [
        ({"kind": "root"}, "read", None),
        ({"kind": "project_roots", "subpath": None}, "write", None),
        ({"kind": "slash_tmp"}, "write", None),
        ({"kind": "tmpdir"}, "write", None),
        *(
            ({"kind": "project_roots", "subpath": name}, "read", "skip")
            for name in (".git", ".agents", ".codex", ".aws")
        ),
    ]
    entries: list[object] = [
        {"path": {"type": "special", "value": value}, "access": access, "missing_path_behavior": missing}
        for value, access, missing in special
    ]
    entries += [
        {
            "path": {"type": "glob_pattern", "pattern": "**/.env"},
            "access": "deny",
            "missing_path_behavior": None,
        },
        {
            "path": {"type": "path", "path": "file:///srv/o%20t"},
            "access": "write",
            "missing_path_behavior": None,
        },
    ]
    sent = wire(policy.context("/elsewhere"))
    assert isinstance(sent, dict)
    assert sent["permissions"] == {
        "type": "managed",
        "file_system": {"type": "restricted", "entries": entries, "glob_scan_max_depth": None},
        "network": "restricted",
    }
    assert sent["cwd"] == "file:///srv/p"
    assert sent["workspaceRoots"] == ["file:///srv/p"]
    assert sent["windowsSandboxLevel"] == "disabled"


def test_policies_without_rules_travel_without_entries() -> None:
    assert Policy.full_access().context("/").permissions == Disabled()
    assert Policy.unrestricted(network=True).context("/").permissions == Managed(Unrestricted(), "enabled")
    external = Policy(Wish(None, Network.ON, PolicyKind.EXTERNAL))
    assert external.context("/").permissions == External("enabled")


@every_row("place", Place)
def test_every_place_travels_by_its_name(place: Place) -> None:
    sent = wire(Policy(Wish((Rule(Special(place), Access.READ),), Network.OFF)).context("/"))
    assert isinstance(sent, dict)
    [entry] = sent["permissions"]["file_system"]["entries"]
    assert entry["path"]["value"]["kind"] == place


def test_without_a_root_the_workspace_is_where_the_command_runs() -> None:
    context = Policy.read_only().context(PurePosixPath("/srv/p"))
    assert (context.cwd, context.workspace_roots) == (
        PathUri.from_native("/srv/p"),
        [PathUri.from_native("/srv/p")],
    )
    unknown = Policy.read_only().context(None)
    assert (unknown.cwd, unknown.workspace_roots) == (None, [])
    with pytest.raises(UsageError):
        Policy.read_only().context("srv")


def test_windows_gets_a_sandbox_where_one_is_asked_for() -> None:
    policy = Policy.workspace_write("C:\\work").deny("C:\\work\\keys")
    context = policy.context("C:\\")
    assert context.windows_sandbox_level == "restricted-token"
    assert context.cwd == PathUri.parse("file:///C:/work")
    assert Policy.full_access().context("C:\\").windows_sandbox_level == "disabled"


def test_it_shows_what_it_says() -> None:
    policy = Policy.workspace_write("/srv/p").allow_write("/srv/out").deny("**/.env")
    shown = repr(policy)
    for part in ("read :root", "write :workspace", "write /srv/out", "deny **/.env", "network off", "/srv/p"):
        assert part in shown
    assert "read :workspace/.git" in shown
    assert "network on" in repr(Policy.full_access())
    assert "no sandbox" in repr(Policy.full_access())
    assert "unrestricted" in repr(Policy.unrestricted())
    assert ":unknown" in repr(Policy(Wish((Rule(Special(Place.UNKNOWN), Access.READ),), Network.OFF)))
