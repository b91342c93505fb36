"""What readings and attempts mean: told apart, named, and with a remedy where there is one."""

import errno
import json
from collections.abc import Mapping

import pytest

from holdfast.sandbox.host.hostfacts import (
    AppArmor,
    Bwrap,
    Fact,
    HostFacts,
    capabilities,
    container_of,
    fact_of,
    host_facts,
)
from tests.support.rows import every_row

RESTRICT = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
STATUS = "Name:\tx\nCapEff:\t0000000000200080\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"


def host(readings: Mapping[str, str | None], *facts: Fact) -> HostFacts:
    return host_facts(facts, readings, uid=1000, release="6.1", variable="")


def test_what_works_fails_or_could_not_be_tried_is_told_apart() -> None:
    assert fact_of("uid map", "uidmap", "", 0, "") == Fact("uid map", works=True)
    assert fact_of("uid map", "uidmap", "uidmap", errno.EACCES, "").works is False
    assert fact_of("uid map", "uidmap", "userns", errno.EPERM, "").works is None
    assert fact_of("bwrap", "bwrap", "bwrap.option", errno.ENOSYS, "").works is False


def test_what_fails_is_reported_with_its_cause_and_remedy() -> None:
    report = fact_of("uid map", "uidmap", "userns", errno.EPERM, "").report()
    assert (report["works"], report["errno"], report["fingerprint"]) == (None, "EPERM", "userns.eperm")
    assert report["remedy"]
    assert fact_of("seccomp", "seccomp", "", 0, "").report()["fingerprint"] is None


def test_capabilities_have_their_names() -> None:
    assert capabilities(0) == ()
    assert capabilities(1 << 21 | 1 << 7) == ("setuid", "sys_admin")
    assert capabilities(1 << 40 | 1 << 60) == ("checkpoint_restore", "cap_60")


@every_row(
    ("readings", "variable", "expected"),
    [
        ({}, "", None),
        ({"/.dockerenv": ""}, "", "docker"),
        ({"/run/.containerenv": "", "/.dockerenv": ""}, "", "podman"),
        ({"/proc/self/cgroup": "0::/kubepods/besteffort/pod1"}, "", "kubernetes"),
        ({"/proc/self/cgroup": "0::/user.slice"}, "", None),
        ({"/proc/self/cgroup": "0::/lxc/1"}, "systemd-nspawn", "systemd-nspawn"),
        ({"/proc/version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"}, "", "gvisor"),
    ],
)
def test_a_container_is_known_by_what_it_leaves(
    readings: dict[str, str | None], variable: str, expected: str | None
) -> None:
    assert container_of(readings, variable) == expected


def test_privileges_and_what_is_around_us_are_read_from_the_status() -> None:
    found = host({"/proc/self/status": STATUS})
    assert found.capabilities == ("setuid", "sys_admin")
    assert (found.no_new_privileges, found.filtered) == (True, True)
    bare = host({})
    assert (bare.capabilities, bare.no_new_privileges, bare.filtered) == ((), False, False)


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("0\n", False), ("1\n", True)])
def test_a_switch_that_is_not_there_is_neither_on_nor_off(text: str | None, expected: bool | None) -> None:
    found = host({RESTRICT: text, "/proc/sys/kernel/unprivileged_userns_clone": text})
    assert (found.apparmor.restricts, found.userns_clone) == (expected, expected)


def test_the_label_of_a_process_is_apparmors_only_where_selinux_is_not() -> None:
    label: dict[str, str | None] = {"/proc/self/attr/current": "unconfined\n"}
    assert host(label).apparmor == AppArmor("unconfined", None)
    both = host(label | {"/sys/fs/selinux/enforce": "1"})
    assert (both.apparmor.profile, both.selinux) == (None, "enforcing")
    assert host({"/sys/fs/selinux/enforce": "0"}).selinux == "permissive"
    assert host({"/proc/self/attr/current": "\0"}).apparmor.profile is None


def test_limits_that_cannot_be_read_are_left_out() -> None:
    assert host(
        {"/proc/sys/user/max_user_namespaces": "0\n", "/proc/sys/user/max_net_namespaces": "x"}
    ).limits == {"user": 0}


def test_landlock_and_bubblewrap_have_versions_if_they_work() -> None:
    able = host(
        {}, Fact("landlock", works=True, detail="7"), Fact("bwrap", works=True, detail="0.8.0 /a b/bwrap")
    )
    assert (able.landlock_abi, able.bwrap) == (7, Bwrap("/a b/bwrap", "0.8.0"))
    unable = host({}, Fact("landlock", works=False, stage="landlock", errno=38), Fact("bwrap", works=None))
    assert (unable.landlock_abi, unable.bwrap) == (0, None)


def test_the_report_is_plain() -> None:
    found = host({"/proc/self/status": STATUS, RESTRICT: "1"}, Fact("bwrap", works=True, detail="1 /b"))
    report = json.loads(json.dumps(found.report()))
    assert report["apparmor"] == {"profile": None, "restricts": True}
    assert report["bwrap"] == {"path": "/b", "version": "1"}
    assert report["facts"][0]["name"] == "bwrap"
    assert found.fact("bwrap") is found.facts[0]
    assert found.fact("nothing") is None
