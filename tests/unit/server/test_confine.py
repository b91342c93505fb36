"""What a wire policy asks of the sandbox, and that nothing runs without it."""

from typing import cast

import pytest

from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.sandbox.select import NONE, Need
from holdfast.server.confine import FileUse, confine_files, confine_process, file_needs, process_needs
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
    SpecialPath,
    Unrestricted,
)
from holdfast.wire.processes import StartParams

READ, WRITE = FileUse.READ, FileUse.WRITE
FILES = frozenset({Need.FILE_SYSTEM})
SRV = PathUri.parse("file:///srv")
FOREIGN = PathUri.parse("file:///C:/x")

ROOT_READ = Entry(SpecialPath(RootPath()), "read")
ROOT_WRITE = Entry(SpecialPath(RootPath()), "write")
ROOT_DENY = Entry(SpecialPath(RootPath()), "deny")
SRV_READ = Entry(LiteralPath(SRV), "read")
SRV_WRITE = Entry(LiteralPath(SRV), "write")
SRV_DENY = Entry(LiteralPath(SRV), "deny")
SRV_NONE = Entry(LiteralPath(SRV), "none")
GLOB_DENY = Entry(GlobPath("**/*.env"), "deny")


def limits(*entries: Entry) -> Managed:
    return Managed(Restricted([*entries]), "enabled")


def context(profile: PermissionProfile, **members: list[PathUri]) -> SandboxContext:
    return SandboxContext(profile, "disabled", workspace_roots=members.get("roots", []))


def start(
    sandbox: SandboxContext | None, *, managed: bool = False, proxy: dict[str, object] | None = None
) -> StartParams:
    return StartParams(
        "p", ["ls"], SRV, {}, False, sandbox=sandbox, enforce_managed_network=managed, network_proxy=proxy
    )


@pytest.mark.parametrize("use", FileUse)
@pytest.mark.parametrize(
    "profile",
    [
        Disabled(),
        External("restricted"),
        External("enabled"),
        Managed(Unrestricted(), "restricted"),
        limits(ROOT_WRITE),
        limits(SRV_WRITE, ROOT_WRITE),
    ],
)
def test_full_access_needs_nothing(profile: PermissionProfile, use: FileUse) -> None:
    assert file_needs(profile, use) == frozenset()
    confine_files(context(profile), use)


@pytest.mark.parametrize(
    ("entries", "read", "write"),
    [
        ([ROOT_READ], frozenset(), FILES),
        ([ROOT_READ, SRV_READ], frozenset(), FILES),
        ([ROOT_READ, SRV_WRITE], frozenset(), FILES),
        ([ROOT_WRITE, SRV_READ], frozenset(), FILES),
        ([ROOT_READ, SRV_DENY], FILES, FILES),
        ([ROOT_WRITE, SRV_DENY], FILES, FILES),
        ([ROOT_WRITE, SRV_NONE], FILES, FILES),
        ([ROOT_WRITE, GLOB_DENY], FILES, FILES),
        ([ROOT_WRITE, ROOT_DENY], FILES, FILES),
        ([ROOT_DENY], FILES, FILES),
        ([SRV_WRITE], FILES, FILES),
        ([Entry(SpecialPath(MinimalPath()), "read")], FILES, FILES),
        ([Entry(SpecialPath(ProjectRoots()), "write")], FILES, FILES),
        ([], FILES, FILES),
    ],
)
def test_anything_less_needs_the_file_system_enforced(
    entries: list[Entry], read: frozenset[Need], write: frozenset[Need]
) -> None:
    assert file_needs(limits(*entries), READ) == read
    assert file_needs(limits(*entries), WRITE) == write


@pytest.mark.parametrize("use", FileUse)
def test_files_without_a_policy_are_free(use: FileUse) -> None:
    confine_files(None, use)


def test_a_restricted_file_operation_does_not_run_unconfined() -> None:
    confine_files(context(limits(ROOT_READ)), READ)
    with pytest.raises(SandboxUnavailable):
        confine_files(context(limits(ROOT_READ)), WRITE)
    with pytest.raises(SandboxUnavailable):
        confine_files(context(limits(SRV_READ)), READ)


RELATIVE = [
    Entry(GlobPath("*.env"), "deny"),
    Entry(SpecialPath(ProjectRoots(".git")), "read"),
    Entry(SpecialPath(CurrentWorkingDirectory()), "write"),
]


@pytest.mark.parametrize("entry", RELATIVE)
@pytest.mark.parametrize(
    ("cwd", "policy", "known"),
    [
        (None, None, False),
        (SRV, None, True),
        (None, PolicyContext(SRV), True),
        (SRV, PolicyContext(None, [SRV]), False),  # what replaces the context replaces its cwd too
    ],
)
def test_a_policy_that_depends_on_the_working_directory_has_to_name_it(
    entry: Entry, cwd: PathUri | None, policy: PolicyContext | None, known: bool
) -> None:
    sandbox = SandboxContext(limits(ROOT_READ, entry), "disabled", cwd=cwd, policy_context=policy)
    expected = SandboxUnavailable if known else UsageError
    with pytest.raises(expected) as caught:
        confine_files(sandbox, WRITE)
    assert known or str(caught.value) == "file system sandbox context with dynamic permissions requires cwd"


@pytest.mark.parametrize("entry", [Entry(GlobPath("/srv/*.env"), "deny"), SRV_DENY, ROOT_DENY])
def test_an_absolute_policy_needs_no_working_directory(entry: Entry) -> None:
    with pytest.raises(SandboxUnavailable):
        confine_files(context(limits(ROOT_READ, entry)), READ)


@pytest.mark.parametrize("entry", RELATIVE)
def test_a_process_brings_its_own_working_directory(entry: Entry) -> None:
    with pytest.raises(SandboxUnavailable):
        confine_process(start(context(limits(ROOT_READ, entry))))


@pytest.mark.parametrize(
    ("profile", "needs"),
    [
        (Disabled(), set()),
        (External("enabled"), set()),
        (External("restricted"), {Need.NETWORK_OFF}),
        (Managed(Unrestricted(), "enabled"), set()),
        (Managed(Unrestricted(), "restricted"), {Need.NETWORK_OFF}),
        (limits(ROOT_WRITE), set()),
        (limits(ROOT_READ), {Need.FILE_SYSTEM}),
        (Managed(Restricted([ROOT_READ]), "restricted"), {Need.FILE_SYSTEM, Need.NETWORK_OFF}),
    ],
)
def test_a_process_needs_files_and_network_as_its_policy_says(
    profile: PermissionProfile, needs: set[Need]
) -> None:
    assert process_needs(start(context(profile))) == needs


@pytest.mark.parametrize("sandbox", [None, context(Disabled())])
def test_managed_networking_is_a_need_of_its_own(sandbox: SandboxContext | None) -> None:
    assert process_needs(start(sandbox)) == frozenset()
    assert process_needs(start(sandbox, managed=True)) == {Need.NETWORK_PROXY}
    assert process_needs(start(sandbox, proxy={})) == {Need.NETWORK_PROXY}


@pytest.mark.parametrize(
    "params",
    [
        start(None, managed=True),
        start(None, proxy={"enabled": False}),
        start(context(limits(ROOT_READ))),
        start(context(External("restricted"))),
    ],
)
def test_a_process_that_asks_for_limits_is_not_started_without(params: StartParams) -> None:
    with pytest.raises(SandboxUnavailable):
        confine_process(params)


@pytest.mark.parametrize("sandbox", [None, context(Disabled()), context(limits(ROOT_WRITE), roots=[SRV])])
def test_a_process_without_limits_starts_and_says_so(sandbox: SandboxContext | None) -> None:
    assert confine_process(start(sandbox)) is NONE


WRONG = "'file:///C:/x' is invalid on 'linux'"


@pytest.mark.parametrize(
    ("sandbox", "text"),
    [
        (
            SandboxContext(Disabled(), "disabled", cwd=FOREIGN),
            f"sandbox cwd URI `file:///C:/x` is not valid on this exec-server host: {WRONG}",
        ),
        (
            context(Disabled(), roots=[SRV, FOREIGN]),
            f"sandbox workspace root URI `file:///C:/x` is not valid on this exec-server host: {WRONG}",
        ),
        (
            context(limits(ROOT_READ, GLOB_DENY, SRV_READ, Entry(LiteralPath(FOREIGN), "read"))),
            f"invalid sandbox permission path URI: {WRONG}",
        ),
    ],
    ids=["cwd", "root", "entry"],
)
def test_paths_of_another_platform_are_refused_before_the_policy_is(
    sandbox: SandboxContext, text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        confine_process(start(sandbox))
    assert str(caught.value) == text


def test_native_paths_of_a_policy_pass() -> None:
    with pytest.raises(SandboxUnavailable):
        confine_process(start(context(limits(SRV_READ, GLOB_DENY), roots=[SRV])))


def test_a_kind_of_policy_that_nobody_thought_of_is_not_waved_through() -> None:
    with pytest.raises(AssertionError):
        file_needs(cast(PermissionProfile, object()), READ)
    odd = Entry(cast(LiteralPath, object()), "read")
    with pytest.raises(AssertionError):
        confine_process(start(context(limits(odd))))
