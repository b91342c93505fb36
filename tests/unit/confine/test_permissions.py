"""What a wire policy means: rules, places, needs, and whether a file call may run directly."""

import pytest

from holdfast.confine.permissions import (
    MAX_HOST_RULES,
    FileUse,
    check_cwd,
    loopback_ports,
    managed_ports,
    managed_sockets,
    policy_of,
    runs_directly,
    where_of,
)
from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.sandbox.plan.plan import MAX_LOOPBACK_PORTS
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    Glob,
    Need,
    Network,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
    Where,
    bind,
    needs_of,
)
from holdfast.wire.network import ManagedNetwork, NetworkProxy, ProxySettings
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import (
    AllowedHosts,
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
    TmpDir,
    UnknownPath,
    Unrestricted,
)
from holdfast.wire.processes import StartParams
from tests.support.rows import every_row

SRV = PathUri.parse("file:///srv")
FOREIGN = PathUri.parse("file:///C:/x")
ROOT_READ = Entry(SpecialPath(RootPath()), "read")
ROOT_WRITE = Entry(SpecialPath(RootPath()), "write")
SRV_WRITE = Entry(LiteralPath(SRV), "write")
SRV_DENY = Entry(LiteralPath(SRV), "deny")


def context(profile: PermissionProfile, **more: object) -> SandboxContext:
    return SandboxContext(profile, "disabled", **more)  # type: ignore[arg-type]


def limited(*entries: Entry) -> Managed:
    return Managed(Restricted([*entries]), "enabled")


def needs(profile: PermissionProfile) -> frozenset[Need]:
    return needs_of(bind(policy_of(context(profile)), Where("/srv")))


@pytest.mark.parametrize(
    ("profile", "policy"),
    [
        (Disabled(), Policy(None, Network.ON, PolicyKind.DISABLED)),
        (External("restricted"), Policy(None, Network.OFF, PolicyKind.EXTERNAL)),
        (Managed(Unrestricted(), "restricted"), Policy(None, Network.OFF)),
        (
            Managed(Restricted([ROOT_READ], 3), "enabled"),
            Policy((Rule(Special(Place.ROOT), Access.READ),), Network.ON, glob_depth=3),
        ),
    ],
)
def test_each_profile_is_a_policy(profile: PermissionProfile, policy: Policy) -> None:
    assert policy_of(context(profile)) == policy


@every_row(
    ("path", "target"),
    [
        (LiteralPath(SRV), At("/srv")),
        (GlobPath("**/*.env"), Glob("**/*.env")),
        (SpecialPath(RootPath()), Special(Place.ROOT)),
        (SpecialPath(MinimalPath()), Special(Place.MINIMAL)),
        (SpecialPath(ProjectRoots("a")), Special(Place.PROJECT_ROOTS, "a")),
        (SpecialPath(CurrentWorkingDirectory("a")), Special(Place.PROJECT_ROOTS, "a")),
        (SpecialPath(TmpDir()), Special(Place.TMPDIR)),
        (SpecialPath(SlashTmp()), Special(Place.SLASH_TMP)),
        (SpecialPath(UnknownPath(":new")), Special(Place.UNKNOWN)),
    ],
)
def test_each_kind_of_path_is_a_target(path: LiteralPath | GlobPath | SpecialPath, target: object) -> None:
    for wire, access in (("read", Access.READ), ("write", Access.WRITE), ("none", Access.DENY)):
        [rule] = policy_of(context(limited(Entry(path, wire, "skip")))).rules or ()  # type: ignore[arg-type]
        assert rule == Rule(target, access, skip_missing=True)  # type: ignore[arg-type]


def test_a_path_of_another_system_is_refused_wherever_it_stands() -> None:
    with pytest.raises(UsageError):
        policy_of(context(limited(Entry(LiteralPath(FOREIGN), "read"))))
    for more in ({"cwd": FOREIGN}, {"workspace_roots": [FOREIGN]}):
        with pytest.raises(UsageError):
            where_of(context(Disabled(), **more), cwd="/", environ={}, slash_tmp=True)


def test_a_policy_context_replaces_the_directories_of_the_context() -> None:
    plain = context(Disabled(), cwd=SRV, workspace_roots=[SRV])
    assert where_of(plain, cwd="/c", environ={"TMPDIR": "/t"}, slash_tmp=False) == Where(
        "/srv", ("/srv",), "/t", slash_tmp=False
    )
    replaced = context(Disabled(), cwd=SRV, workspace_roots=[SRV], policy_context=PolicyContext())
    assert where_of(replaced, cwd="/c", environ={"TMPDIR": ""}, slash_tmp=True) == Where("/c", ())


def test_needs_follow_from_what_is_not_allowed() -> None:
    assert needs(Disabled()) == needs(External("enabled")) == needs(limited(ROOT_WRITE)) == frozenset()
    assert needs(External("restricted")) == {Need.NETWORK_OFF}
    assert needs(limited(ROOT_READ)) == needs(limited(ROOT_WRITE, SRV_DENY)) == {Need.FILE_SYSTEM}
    assert needs(Managed(Restricted([]), "restricted")) == {Need.FILE_SYSTEM, Need.NETWORK_OFF}


def test_a_file_call_runs_directly_only_if_nothing_is_denied_to_it() -> None:
    for entries, reads, writes in (
        ([ROOT_WRITE], True, True),
        ([ROOT_READ, SRV_WRITE], True, False),
        ([ROOT_READ, SRV_DENY], False, False),
        ([SRV_WRITE], False, False),
    ):
        bound = bind(policy_of(context(limited(*entries))), Where("/srv"))
        assert runs_directly(bound, FileUse.READ) is reads
        assert runs_directly(bound, FileUse.WRITE) is writes


@pytest.mark.parametrize(
    ("entry", "depends"),
    [
        (Entry(SpecialPath(ProjectRoots()), "write"), True),
        (Entry(GlobPath("*.env"), "deny"), True),
        (Entry(GlobPath("/srv/*.env"), "deny"), False),
        (ROOT_READ, False),
    ],
)
def test_a_policy_that_depends_on_a_directory_must_name_it(entry: Entry, depends: bool) -> None:
    unplaced = context(limited(entry))
    if depends:
        with pytest.raises(UsageError):
            check_cwd(unplaced)
    else:
        check_cwd(unplaced)
    check_cwd(context(limited(entry), cwd=SRV))
    assert policy_of(unplaced).rules


def start(**more: object) -> StartParams:
    return StartParams("p", ["true"], SRV, {}, False, **more)  # type: ignore[arg-type]


PROXY = NetworkProxy(
    ProxySettings(True, True, True, True, False, False, "full", unix_sockets={"/s": "allow", "/t": "deny"})
)


def test_a_proxy_alone_takes_the_network_away_and_grants_the_sockets_that_it_names() -> None:
    asked = start(sandbox=context(Disabled()), network_proxy=PROXY)
    assert managed_ports(asked) == ()
    assert managed_sockets(asked) == ("/s",)


def test_ports_are_managed_only_where_that_is_enforced() -> None:
    asked = ManagedNetwork([81, 80, 81], allow_local_binding=True, allow_unix_sockets=["/s"])
    inside = context(Disabled())
    assert managed_ports(start(sandbox=inside, managed_network=asked)) is None
    enforced = start(sandbox=inside, managed_network=asked, enforce_managed_network=True)
    assert managed_ports(enforced) == (80, 81)
    nothing = start(sandbox=inside, managed_network=ManagedNetwork(), enforce_managed_network=True)
    assert managed_ports(nothing) == ()


@every_row(
    "more",
    [
        {"enforce_managed_network": True},
        {"enforce_managed_network": True, "sandbox": context(Disabled())},
        {"enforce_managed_network": True, "managed_network": ManagedNetwork([80])},
        {"network_proxy": PROXY},
        {"network_proxy": PROXY, "enforce_managed_network": True},
    ],
)
def test_a_managed_network_without_what_it_takes_fails_closed(more: dict[str, object]) -> None:
    with pytest.raises(SandboxUnavailable):
        managed_ports(start(**more))


def test_all_unix_sockets_at_once_are_not_granted() -> None:
    asked = ManagedNetwork([80], dangerously_allow_all_unix_sockets=True)
    with pytest.raises(UsageError):
        managed_ports(start(sandbox=context(Disabled()), managed_network=asked, enforce_managed_network=True))


@pytest.mark.parametrize("ports", [[0], [80, 65536], [-1], range(1, MAX_LOOPBACK_PORTS + 2)])
def test_a_number_that_is_no_port_and_too_many_of_them_are_refused(ports: list[int]) -> None:
    with pytest.raises(UsageError):
        loopback_ports(ports)
    assert len(loopback_ports([*range(1, MAX_LOOPBACK_PORTS + 1)] * 2)) == MAX_LOOPBACK_PORTS


HOSTS = AllowedHosts(["api.test", "**.org.test:443"], ["ads.org.test"], True, {"API.test.": "10.0.0.1"})


def test_hosts_are_part_of_a_policy_that_has_the_network_off() -> None:
    policy = policy_of(context(Managed(Unrestricted(), "restricted"), hosts=HOSTS))
    assert policy.hosts.allow == ("api.test", "**.org.test:443")
    assert policy.hosts.addresses == (("api.test", "10.0.0.1"),)
    assert Need.HOSTS_BY_NAME in needs_of(bind(policy, Where("/srv")))
    with pytest.raises(UsageError, match="what is left of a network"):
        policy_of(context(limited(ROOT_READ), hosts=HOSTS))
    assert not policy_of(context(Disabled(), hosts=HOSTS)).hosts.allow


@every_row(
    "rules", [["a b"], ["evil.com\0.api.test"], ["x"] * (MAX_HOST_RULES + 1)], ids=lambda rules: rules[0]
)
def test_hosts_that_make_no_sense_are_refused(rules: list[str]) -> None:
    with pytest.raises(UsageError):
        policy_of(context(Managed(Unrestricted(), "restricted"), hosts=AllowedHosts(rules)))


def test_an_address_of_a_host_is_an_address() -> None:
    for addresses in ({"api.test": "here"}, {"a b": "10.0.0.1"}):
        with pytest.raises(UsageError, match="is no host and its address"):
            policy_of(
                context(
                    Managed(Unrestricted(), "restricted"),
                    hosts=AllowedHosts(["api.test"], addresses=addresses),
                )
            )
