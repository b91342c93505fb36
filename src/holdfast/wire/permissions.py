"""The sandbox context and permission profile in their wire format. Pure module.

The context uses camelCase, everything inside `permissions` snake_case: the reference's two layers differ.
Only the form is checked here; `holdfast.sandbox` decides the meaning of a profile.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

from holdfast.wire.paths import PathUri
from holdfast.wire.structs import U64

Network: TypeAlias = Literal["restricted", "enabled"]


class RootPath(msgspec.Struct, frozen=True, tag_field="kind", tag="root"):
    pass


class MinimalPath(msgspec.Struct, frozen=True, tag_field="kind", tag="minimal"):
    pass


class ProjectRoots(msgspec.Struct, frozen=True, tag_field="kind", tag="project_roots"):
    subpath: str | None = None


class CurrentWorkingDirectory(msgspec.Struct, frozen=True, tag_field="kind", tag="current_working_directory"):
    """The old name of project_roots; decoded, never sent."""

    subpath: str | None = None


class TmpDir(msgspec.Struct, frozen=True, tag_field="kind", tag="tmpdir"):
    pass


class SlashTmp(msgspec.Struct, frozen=True, tag_field="kind", tag="slash_tmp"):
    pass


class UnknownPath(msgspec.Struct, frozen=True, tag_field="kind", tag="unknown"):
    path: str
    subpath: str | None = None


SpecialValue: TypeAlias = (
    RootPath | MinimalPath | ProjectRoots | CurrentWorkingDirectory | TmpDir | SlashTmp | UnknownPath
)


class LiteralPath(msgspec.Struct, frozen=True, tag_field="type", tag="path"):
    path: PathUri


class GlobPath(msgspec.Struct, frozen=True, tag_field="type", tag="glob_pattern"):
    pattern: str


class SpecialPath(msgspec.Struct, frozen=True, tag_field="type", tag="special"):
    value: SpecialValue


class Entry(msgspec.Struct, frozen=True):
    path: LiteralPath | GlobPath | SpecialPath
    access: Literal["read", "write", "deny", "none"]
    missing_path_behavior: Literal["skip"] | None = None


class Unrestricted(msgspec.Struct, frozen=True, tag_field="type", tag="unrestricted"):
    pass


class Restricted(msgspec.Struct, frozen=True, tag_field="type", tag="restricted"):
    entries: list[Entry]
    glob_scan_max_depth: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Managed(msgspec.Struct, frozen=True, tag_field="type", tag="managed"):
    file_system: Unrestricted | Restricted
    network: Network


class Disabled(msgspec.Struct, frozen=True, tag_field="type", tag="disabled"):
    pass


class External(msgspec.Struct, frozen=True, tag_field="type", tag="external"):
    network: Network


PermissionProfile: TypeAlias = Managed | Disabled | External


class PolicyContext(msgspec.Struct, frozen=True, rename="camel"):
    cwd: PathUri | None = None
    workspace_roots: list[PathUri] | None = None


class AllowedHosts(msgspec.Struct, frozen=True, rename="camel"):
    """Ours: hosts that may be reached by name while the network is restricted, as in `--allow-host`.

    With `ask_timeout_ms`, the client is asked about others that no rule denies (`network/policyRequest`).
    """

    allow: list[str]
    deny: list[str] = []
    private: bool = False
    addresses: dict[str, str] = {}
    own: list[str] = []  # names that may have an address that is not public, whatever `private` says
    limits: list[str] = []  # on traffic, as in `--net-limit`
    ask_timeout_ms: U64 | msgspec.UnsetType = msgspec.UNSET


class SandboxContext(msgspec.Struct, frozen=True, rename="camel"):
    permissions: PermissionProfile
    windows_sandbox_level: Literal["disabled", "restricted-token", "elevated", "mxc"]
    cwd: PathUri | None = None
    workspace_roots: list[PathUri] = []
    policy_context: PolicyContext | None = None
    user_home_dir: PathUri | None = None
    temporary_directories: list[PathUri] | None = None
    sandbox_override: Literal[
        "noOverride", "escalatedSandboxWithRestrictions", "bypassSandboxFirstAttempt"
    ] = "noOverride"
    windows_sandbox_proxy_settings_mode: Literal["reconcile", "preserve"] | None = None
    use_legacy_landlock: bool = False
    unix_sockets: list[str] | msgspec.UnsetType = msgspec.UNSET  # ours: reachable sockets of the host
    hosts: AllowedHosts | msgspec.UnsetType = msgspec.UNSET  # ours
