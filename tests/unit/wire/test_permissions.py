"""The sandbox context on the wire: what decodes to what, and what does not."""

import pytest

from holdfast.errors import UsageError
from holdfast.wire.methods import METHODS, decode_params
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import (
    CurrentWorkingDirectory,
    Disabled,
    Entry,
    External,
    GlobPath,
    LiteralPath,
    Managed,
    MinimalPath,
    PermissionProfile,
    PolicyContext,
    ProjectRoots,
    Restricted,
    RootPath,
    SandboxContext,
    SlashTmp,
    SpecialPath,
    SpecialValue,
    TmpDir,
    UnknownPath,
    Unrestricted,
)
from tests.support.rows import every_row

ROOT_READ = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
PROJECT = PathUri.parse("file:///srv/project")


DISABLED = {"type": "disabled"}


def context(permissions: object = DISABLED, **members: object) -> SandboxContext:
    sandbox = {"permissions": permissions, "windowsSandboxLevel": "disabled"}
    params = decode_params(METHODS["fs/canonicalize"], {"path": "file:///", "sandbox": sandbox | members})
    assert isinstance(params.sandbox, SandboxContext)
    return params.sandbox


def restricted(*entries: object, **members: object) -> dict[str, object]:
    file_system = {"type": "restricted", "entries": [*entries], **members}
    return {"type": "managed", "file_system": file_system, "network": "restricted"}


def only_entry(entry: object) -> Entry:
    match context(restricted(entry)).permissions:
        case Managed(file_system=Restricted(entries=[one])):
            return one
        case other:
            raise AssertionError(other)


@every_row(
    ("wire", "profile"),
    [
        ({"type": "disabled"}, Disabled()),
        ({"type": "disabled", "later": 1}, Disabled()),
        ({"type": "external", "network": "enabled"}, External("enabled")),
        ({"type": "external", "network": "restricted"}, External("restricted")),
        (
            {"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"},
            Managed(Unrestricted(), "restricted"),
        ),
        (restricted(), Managed(Restricted([]), "restricted")),
        (restricted(glob_scan_max_depth=None), Managed(Restricted([]), "restricted")),
        (restricted(glob_scan_max_depth=3), Managed(Restricted([], 3), "restricted")),
        (
            restricted(ROOT_READ),
            Managed(Restricted([Entry(SpecialPath(RootPath()), "read")]), "restricted"),
        ),
    ],
)
def test_a_profile_decodes(wire: object, profile: PermissionProfile) -> None:
    assert context(wire).permissions == profile


@every_row(
    ("value", "special"),
    [
        ({"kind": "root"}, RootPath()),
        ({"kind": "minimal"}, MinimalPath()),
        ({"kind": "project_roots"}, ProjectRoots()),
        ({"kind": "project_roots", "subpath": None}, ProjectRoots()),
        ({"kind": "project_roots", "subpath": ".git"}, ProjectRoots(".git")),
        ({"kind": "current_working_directory", "subpath": "x"}, CurrentWorkingDirectory("x")),
        ({"kind": "tmpdir"}, TmpDir()),
        ({"kind": "slash_tmp"}, SlashTmp()),
        ({"kind": "unknown", "path": "later"}, UnknownPath("later")),
        ({"kind": "unknown", "path": "later", "subpath": "x"}, UnknownPath("later", "x")),
    ],
)
def test_a_special_path_decodes(value: object, special: SpecialValue) -> None:
    entry = only_entry({"path": {"type": "special", "value": value}, "access": "write"})
    assert entry == Entry(SpecialPath(special), "write")


def test_literal_and_glob_paths_decode() -> None:
    literal = {"path": {"type": "path", "path": "file:///srv/project"}, "access": "deny"}
    glob = {"path": {"type": "glob_pattern", "pattern": "**/*.env"}, "access": "none"}
    assert only_entry(literal) == Entry(LiteralPath(PROJECT), "deny")
    assert only_entry(glob) == Entry(GlobPath("**/*.env"), "none")


@pytest.mark.parametrize("behaviour", [None, "skip"])
def test_an_entry_may_be_skipped_when_its_path_is_missing(behaviour: str | None) -> None:
    assert only_entry({**ROOT_READ, "missing_path_behavior": behaviour}).missing_path_behavior == behaviour


@every_row(
    "wire",
    [
        {},
        {"type": "open"},
        {"type": "external"},
        {"type": "external", "network": "some"},
        {"type": "managed", "network": "enabled"},
        {"type": "managed", "file_system": {"type": "unrestricted"}},
        {"type": "managed", "file_system": {"type": "restricted"}, "network": "enabled"},
        {"type": "managed", "fileSystem": {"type": "unrestricted"}, "network": "enabled"},
        restricted(glob_scan_max_depth=0),
        restricted(glob_scan_max_depth=-1),
        restricted({"path": {"type": "special", "value": {"kind": "root"}}}),
        restricted({**ROOT_READ, "access": "execute"}),
        restricted({**ROOT_READ, "missing_path_behavior": "create"}),
        restricted({"access": "read"}),
        restricted({"path": {"type": "path", "path": "/srv"}, "access": "read"}),
        restricted({"path": {"type": "path"}, "access": "read"}),
        restricted({"path": {"type": "glob_pattern"}, "access": "deny"}),
        restricted({"path": {"type": "special"}, "access": "read"}),
        restricted({"path": {"type": "special", "value": {"kind": "home"}}, "access": "read"}),
        restricted({"path": {"type": "special", "value": {"kind": "unknown"}}, "access": "read"}),
    ],
)
def test_a_profile_of_another_shape_is_refused(wire: object) -> None:
    with pytest.raises(UsageError):
        context(wire)


def test_what_is_absent_has_its_default() -> None:
    assert context() == SandboxContext(
        Disabled(),
        "disabled",
        cwd=None,
        workspace_roots=[],
        policy_context=None,
        user_home_dir=None,
        temporary_directories=None,
        sandbox_override="noOverride",
        windows_sandbox_proxy_settings_mode=None,
        use_legacy_landlock=False,
    )


def test_what_the_reference_client_sends_decodes() -> None:
    sent = context(
        restricted(ROOT_READ),
        cwd="file:///srv/project",
        workspaceRoots=["file:///srv/project"],
        policyContext={"cwd": "file:///srv/project", "workspaceRoots": ["file:///srv/project"]},
        userHomeDir="file:///home/dev",
        temporaryDirectories=["file:///tmp"],
        sandboxOverride="bypassSandboxFirstAttempt",
        windowsSandboxProxySettingsMode="reconcile",
        windowsSandboxPrivateDesktop=True,
        useLegacyLandlock=True,
    )
    assert sent == SandboxContext(
        Managed(Restricted([Entry(SpecialPath(RootPath()), "read")]), "restricted"),
        "disabled",
        cwd=PROJECT,
        workspace_roots=[PROJECT],
        policy_context=PolicyContext(PROJECT, [PROJECT]),
        user_home_dir=PathUri.parse("file:///home/dev"),
        temporary_directories=[PathUri.parse("file:///tmp")],
        sandbox_override="bypassSandboxFirstAttempt",
        windows_sandbox_proxy_settings_mode="reconcile",
        use_legacy_landlock=True,
    )


def test_empty_workspace_roots_stay_empty() -> None:
    sent = context(cwd="file:///srv", workspaceRoots=[], policyContext={"workspaceRoots": []})
    assert sent.workspace_roots == []
    assert sent.policy_context == PolicyContext(None, [])


@pytest.mark.parametrize("level", ["disabled", "restricted-token", "elevated", "mxc"])
def test_every_windows_level_is_known(level: str) -> None:
    assert context(windowsSandboxLevel=level).windows_sandbox_level == level


@every_row(
    "members",
    [
        {"windowsSandboxLevel": None},
        {"windowsSandboxLevel": "off"},
        {"cwd": "/srv"},
        {"workspaceRoots": None},
        {"workspaceRoots": ["/srv"]},
        {"policyContext": []},
        {"sandboxOverride": None},
        {"sandboxOverride": "always"},
        {"windowsSandboxProxySettingsMode": "keep"},
        {"useLegacyLandlock": None},
    ],
)
def test_a_context_of_another_shape_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        context(**members)
