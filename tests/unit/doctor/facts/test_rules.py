"""Facts in, findings out: what is wrong is named, with what to type, and decides the exit code."""

import errno
from dataclasses import replace

import pytest

from holdfast.doctor.facts.rules import (
    Disk,
    Finding,
    FindingSeverity,
    InstalledProgram,
    MachineFacts,
    PlaceFacts,
    exit_code,
    findings,
)
from holdfast.sandbox.host.hostfacts import AppArmor, Bwrap, Fact, HostFacts
from holdfast.sandbox.plan.select import Trial, Way
from tests.support.rows import every_row

HOST = HostFacts(
    facts=(Fact("user namespace", works=True),),
    kernel="6.18.0",
    uid=1000,
    capabilities=(),
    no_new_privileges=False,
    filtered=False,
    container=None,
    apparmor=AppArmor(None, None),
    selinux=None,
    userns_clone=None,
    limits={},
    landlock_abi=7,
    bwrap=Bwrap("/usr/bin/bwrap", "0.9.0"),
)
WORKS, REFUSED = Trial(), Trial("userns", errno.EPERM)
HEALTHY = MachineFacts(
    host=HOST,
    trials={Way.USER_NAMESPACE: WORKS, Way.BWRAP: WORKS, Way.LANDLOCK: WORKS},
    tmux=InstalledProgram("tmux", "/usr/bin/tmux", "3.3a"),
    agents=(),
    codex_home="/home/me/.codex",
    temporary=PlaceFacts("/tmp", True, True),
    disks=(Disk("/home/me", 50 << 30, 10**6),),
    open_files=4096,
    processes=None,
    encoding="utf-8",
    now=1.8e9,
)
CODEX = InstalledProgram(
    "codex", "/usr/bin/codex", "0.166.0", (PlaceFacts("/home/me/.codex", True, True),), True
)


def found(facts: MachineFacts, id_: str) -> Finding:
    [one] = [finding for finding in findings(facts) if finding.id == id_]
    return one


def test_a_healthy_machine_is_all_good() -> None:
    assert {finding.severity for finding in findings(HEALTHY)} == {FindingSeverity.OK}
    assert exit_code(findings(HEALTHY)) == 0


def test_another_package_of_our_name_is_said_with_what_to_type() -> None:
    finding = found(
        replace(HEALTHY, other_package="0.5.1 is there", other_package_remedy="pip …"),
        "install.other-package",
    )
    assert (finding.severity, finding.remedy) == (FindingSeverity.DEGRADED, "pip …")


def test_a_machine_where_nothing_confines_is_broken_and_says_what_to_change() -> None:
    facts = replace(HEALTHY, trials=dict.fromkeys((Way.USER_NAMESPACE, Way.BWRAP, Way.LANDLOCK), REFUSED))
    assert found(facts, "sandbox.none").severity is FindingSeverity.BROKEN
    assert found(facts, "sandbox.none").remedy
    assert exit_code(findings(facts)) == 2


def test_where_nothing_can_be_started_bubblewraps_word_is_the_cause() -> None:
    facts = replace(HEALTHY, trials={Way.BWRAP: Trial("bwrap:lo.newaddr", errno.EPERM)}, unlaunched="it died")
    one = found(facts, "sandbox.none")
    assert (one.severity, one.evidence, one.fingerprint) == (FindingSeverity.BROKEN, "it died", "lo.newaddr")
    assert found(replace(facts, trials={}), "sandbox.none").fingerprint is None


def test_a_cause_is_named_with_stage_errno_and_fingerprint() -> None:
    one = found(replace(HEALTHY, trials={Way.USER_NAMESPACE: REFUSED}), "sandbox.user_namespace")
    assert one.fingerprint == "userns.eperm"
    assert one.evidence.startswith("userns: EPERM, ")
    assert one.evidence.endswith("[userns.eperm]")


def test_an_errno_that_bubblewrap_did_not_tell_is_not_invented() -> None:
    refused = Trial("bwrap:userns.eperm", errno.EIO)
    one = found(replace(HEALTHY, trials={Way.USER_NAMESPACE: WORKS, Way.BWRAP: refused}), "sandbox.bwrap")
    assert one.evidence.startswith("bwrap, ")
    assert (one.fingerprint, one.severity) == ("userns.eperm", FindingSeverity.NOTE)


@every_row(
    ("word", "others", "facts", "cause"),
    [
        ("proc", {}, (Fact("fresh proc", False, "proc", errno.EPERM),), "proc.masked"),
        ("proc", {}, (), "proc.masked"),
        ("loopback", {}, (), "lo.newaddr"),
        ("landlock", {Way.LANDLOCK: Trial("landlock", errno.EOPNOTSUPP)}, (), "landlock.disabled"),
        ("landlock", {Way.LANDLOCK: WORKS}, (), None),
    ],
)
def test_what_is_weaker_has_its_cause(
    word: str, others: dict[Way, Trial], facts: tuple[Fact, ...], cause: str | None
) -> None:
    trials = {Way.USER_NAMESPACE: Trial(weakened=(word,)), **others}
    one = found(replace(HEALTHY, trials=trials, host=replace(HOST, facts=facts)), f"sandbox.weakened.{word}")
    assert (one.fingerprint, bool(one.remedy), bool(one.evidence)) == (cause, bool(cause), bool(cause))
    assert one.severity is FindingSeverity.DEGRADED
    assert not facts or "EPERM" in one.evidence


@pytest.mark.parametrize(
    ("stage", "starts"), [("bwrap:mount.eperm", False), ("bwrap.missing", True), ("bwrap.option", True)]
)
def test_codex_fails_with_what_the_kernel_refuses_bubblewrap_and_not_for_want_of_the_hosts(
    stage: str, starts: bool
) -> None:
    trials = {Way.USER_NAMESPACE: WORKS, Way.BWRAP: Trial(stage, errno.EPERM)}
    facts = replace(HEALTHY, trials=trials, agents=(CODEX,))
    assert exit_code(findings(facts)) == (0 if starts else 1)
    if not starts:
        assert found(facts, "agent.codex.sandbox").fingerprint == "mount.eperm"
    assert exit_code(findings(replace(facts, agents=()))) == 0


@pytest.mark.parametrize("second", [Way.BWRAP, Way.LANDLOCK])
def test_a_weaker_backend_than_the_strongest_is_degraded_with_stage_and_errno(second: Way) -> None:
    facts = replace(HEALTHY, trials={Way.USER_NAMESPACE: REFUSED, second: WORKS})
    refused = found(facts, "sandbox.user_namespace")
    assert refused.severity is FindingSeverity.DEGRADED
    assert "userns: EPERM" in refused.evidence
    assert "is used" in found(facts, f"sandbox.{second.name.lower()}").title
    assert exit_code(findings(facts)) == 1


def test_whether_hosts_can_be_allowed_by_name_is_said_and_by_whom() -> None:
    finding = found(HEALTHY, "sandbox.hosts-by-name")
    assert (finding.severity, "namespaces (user namespace)" in finding.title) == (FindingSeverity.OK, True)
    for trials in (
        {Way.USER_NAMESPACE: REFUSED, Way.LANDLOCK: WORKS},
        {Way.USER_NAMESPACE: Trial(weakened=("loopback",))},
    ):
        finding = found(replace(HEALTHY, trials=trials), "sandbox.hosts-by-name")
        assert finding.severity is FindingSeverity.DEGRADED
        assert "whole network" in finding.title
    refused = replace(HEALTHY, trials=dict.fromkeys((Way.USER_NAMESPACE, Way.LANDLOCK), REFUSED))
    assert not [one for one in findings(refused) if one.id == "sandbox.hosts-by-name"], "nothing confines"


def test_root_without_user_namespaces_loses_nothing() -> None:
    facts = replace(HEALTHY, trials={Way.USER_NAMESPACE: REFUSED, Way.AS_ROOT: WORKS})
    assert exit_code(findings(facts)) == 0


def test_what_came_out_weaker_is_said_of_the_one_that_is_used() -> None:
    trials = {Way.USER_NAMESPACE: Trial(weakened=("proc",)), Way.BWRAP: Trial(weakened=("landlock",))}
    ids = [finding.id for finding in findings(replace(HEALTHY, trials=trials))]
    assert "sandbox.weakened.proc" in ids
    assert "sandbox.weakened.landlock" not in ids


@every_row(
    ("change", "id_", "severity"),
    [
        ({"disks": (Disk("/", 500 << 20, None),)}, "disk.low", FindingSeverity.DEGRADED),
        ({"disks": (Disk("/", 5 << 20, None),)}, "disk.low", FindingSeverity.BROKEN),
        ({"disks": (Disk("/", 50 << 30, 12),)}, "disk.low", FindingSeverity.DEGRADED),
        ({"open_files": 256}, "limit.open-files", FindingSeverity.DEGRADED),
        ({"encoding": "ascii"}, "locale", FindingSeverity.DEGRADED),
        ({"now": 0.0}, "clock", FindingSeverity.BROKEN),
        ({"tmux": None}, "tool.tmux", FindingSeverity.NOTE),
        ({"temporary": PlaceFacts("/tmp", True, False)}, "temporary", FindingSeverity.BROKEN),
        ({"temporary": PlaceFacts("/tmp", False, True)}, "temporary", FindingSeverity.BROKEN),
    ],
)
def test_each_shortage_is_a_finding_with_something_to_type(
    change: dict[str, object], id_: str, severity: FindingSeverity
) -> None:
    one = found(replace(HEALTHY, **change), id_)  # type: ignore[arg-type]
    assert one.severity is severity
    assert one.remedy


def test_an_agent_says_its_version_and_whether_somebody_logged_in() -> None:
    facts = replace(HEALTHY, agents=(CODEX,))
    assert found(facts, "agent.codex").title == "codex 0.166.0, logged in"
    assert exit_code(findings(facts)) == 0


@pytest.mark.parametrize("exists", [True, False])
def test_an_agent_that_cannot_write_its_state_is_degraded(exists: bool) -> None:
    agent = replace(CODEX, places=(PlaceFacts("/home/me/.codex", exists, False),))
    one = found(replace(HEALTHY, agents=(agent,)), "agent.codex.state")
    assert one.severity is FindingSeverity.DEGRADED
    assert "/home/me/.codex" in (one.remedy or "")


def test_a_codex_home_among_temporary_files_is_broken() -> None:
    facts = replace(HEALTHY, agents=(CODEX,), codex_home="/tmp/home")
    assert found(facts, "agent.codex.home").severity is FindingSeverity.BROKEN
    assert "agent.codex.home" not in [finding.id for finding in findings(replace(facts, agents=()))]


def test_apparmors_switch_and_a_filter_around_us_are_named() -> None:
    host = replace(HOST, apparmor=AppArmor("unconfined", True), filtered=True)
    facts = replace(HEALTHY, host=host)
    assert "apparmor_restrict" in found(facts, "host.apparmor").evidence
    assert found(facts, "host.filtered").severity is FindingSeverity.NOTE


def test_a_stage_that_the_host_refuses_is_named_with_its_errno() -> None:
    host = replace(HOST, facts=(Fact("fresh proc", False, "proc", errno.EPERM),))
    assert "EPERM" in found(replace(HEALTHY, host=host), "host.fresh proc").evidence


def test_a_report_has_plain_values() -> None:
    one = found(HEALTHY, "disk").report()
    assert one["severity"] == "ok"
    assert set(one) == {"id", "severity", "title", "evidence", "remedy", "fingerprint"}


def test_a_program_of_a_record_is_named_and_a_wrong_record_is_degraded() -> None:
    mine = InstalledProgram("mine", "/bin/mine", asked=False)
    facts = replace(HEALTHY, agents=(mine,), invalid_records={"bad": "agents.toml: [bad] binary: is missing"})
    told = {finding.id: finding for finding in findings(facts)}
    assert (told["agent.mine"].severity, told["agent.mine"].title) == (
        FindingSeverity.OK,
        "mine is installed",
    )
    assert told["agent.record"].severity is FindingSeverity.DEGRADED
    assert "binary" in (told["agent.record"].evidence or "")
