"""From a wire sandbox context to the sandbox: needs in, enforcement out. Pure module."""

import enum
from typing import assert_never

from holdfast.errors import UsageError
from holdfast.sandbox.select import Enforcement, Need, select
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import (
    CurrentWorkingDirectory,
    Disabled,
    External,
    GlobPath,
    LiteralPath,
    Managed,
    PermissionProfile,
    ProjectRoots,
    Restricted,
    RootPath,
    SandboxContext,
    SpecialPath,
)
from holdfast.wire.processes import StartParams


class FileUse(enum.Enum):
    """What a file operation does to the files it names."""

    READ = enum.auto()
    WRITE = enum.auto()


def _covers_everything(limits: Restricted, use: FileUse) -> bool:
    """Is this use allowed on the whole file system, with no entry that narrows it?"""
    enough = {"write"} if use is FileUse.WRITE else {"read", "write"}
    everywhere = any(
        isinstance(entry.path, SpecialPath)
        and isinstance(entry.path.value, RootPath)
        and entry.access in enough
        for entry in limits.entries
    )
    return everywhere and all(entry.access in enough for entry in limits.entries)


def file_needs(profile: PermissionProfile, use: FileUse) -> frozenset[Need]:
    """What this use of files under this profile asks of a backend."""
    match profile:
        case Managed(file_system=Restricted() as limits) if not _covers_everything(limits, use):
            return frozenset({Need.FILE_SYSTEM})
        case Disabled() | External() | Managed():
            return frozenset()
        case _:
            assert_never(profile)


def process_needs(params: StartParams) -> frozenset[Need]:
    """What starting this process asks of a backend."""
    needs: frozenset[Need] = frozenset()
    if params.enforce_managed_network or params.network_proxy is not None:
        needs |= {Need.NETWORK_PROXY}
    if params.sandbox is None:
        return needs
    profile = params.sandbox.permissions
    if not isinstance(profile, Disabled) and profile.network == "restricted":
        needs |= {Need.NETWORK_OFF}
    return needs | file_needs(profile, FileUse.WRITE)


def confine_process(params: StartParams) -> Enforcement:
    """What holds for this start.

    Raises:
        UsageError: the policy's own paths are not of this host.
        SandboxUnavailable: the host cannot enforce it; nothing may be run.
    """
    if params.sandbox is not None:
        _check_paths(params.sandbox)
    return select(process_needs(params))


def confine_files(context: SandboxContext | None, use: FileUse) -> None:
    """Return only if the file operation may run directly.

    Raises:
        UsageError: the policy depends on a working directory and names none.
        SandboxUnavailable: the policy restricts it and nothing can enforce that.
    """
    if context is not None:
        if _depends_on_cwd(context.permissions) and _policy_cwd(context) is None:
            raise UsageError("file system sandbox context with dynamic permissions requires cwd")
        select(file_needs(context.permissions, use))


def _policy_cwd(context: SandboxContext) -> PathUri | None:
    return context.cwd if context.policy_context is None else context.policy_context.cwd


def _depends_on_cwd(profile: PermissionProfile) -> bool:
    """Does any entry mean something else in another working directory?"""
    if not isinstance(profile, Managed) or not isinstance(profile.file_system, Restricted):
        return False
    for entry in profile.file_system.entries:
        match entry.path:
            case GlobPath(pattern=pattern) if not pattern.startswith("/"):
                return True
            case SpecialPath(value=ProjectRoots() | CurrentWorkingDirectory()):
                return True
            case _:
                continue
    return False


def _check_paths(context: SandboxContext) -> None:
    for label, uris in (
        ("sandbox cwd", [context.cwd] if context.cwd is not None else []),
        ("sandbox workspace root", context.workspace_roots),
    ):
        for uri in uris:
            try:
                uri.native()
            except UsageError as exc:
                raise UsageError(
                    f"{label} URI `{uri}` is not valid on this exec-server host: {exc}"
                ) from None
    profile = context.permissions
    if isinstance(profile, Managed) and isinstance(profile.file_system, Restricted):
        for entry in profile.file_system.entries:
            match entry.path:
                case LiteralPath(path=uri):
                    try:
                        uri.native()
                    except UsageError as exc:
                        raise UsageError(f"invalid sandbox permission path URI: {exc}") from None
                case GlobPath() | SpecialPath():
                    pass
                case _:
                    assert_never(entry.path)
