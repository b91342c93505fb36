"""Which rule decides about a path, and what the user is told."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.policy import (
    PLATFORM_ROOTS,
    PROTECTED_NAMES,
    Access,
    At,
    BoundPolicy,
    Glob,
    Network,
    PathDecision,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
    Where,
    bind,
    full_access,
    read_only,
    workspace_write,
)
from tests.support.rows import every_row

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY
WHERE = Where("/w", ("/w",))
ROOT, MINIMAL, WORKSPACE = Special(Place.ROOT), Special(Place.MINIMAL), Special(Place.PROJECT_ROOTS)


def policy(*rules: tuple[At | Glob | Special | str, Access], network: Network = Network.OFF) -> Policy:
    targets = ((At(target) if isinstance(target, str) else target, access) for target, access in rules)
    return Policy(tuple(Rule(target, access) for target, access in targets), network)


def bound(*rules: tuple[At | Glob | Special | str, Access], where: Where = WHERE) -> BoundPolicy:
    return bind(policy(*rules), where)


def accesses(policy: BoundPolicy, *paths: str) -> list[Access]:
    return [policy.access_at(path) for path in paths]


def test_the_most_specific_path_decides_whatever_its_access() -> None:
    rules = bound(("/r", WRITE), ("/r/a", DENY), ("/r/a/b", WRITE), ("/r/a/b/c", READ))
    paths = ("/r/x", "/r/a/x", "/r/a/b/x", "/r/a/b/c/x", "/ra")
    assert accesses(rules, *paths) == [WRITE, DENY, WRITE, READ, DENY]


@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [(READ, WRITE, WRITE), (WRITE, DENY, DENY), (READ, DENY, DENY), (DENY, DENY, DENY)],
)
def test_on_the_same_path_deny_beats_write_beats_read(one: Access, other: Access, winner: Access) -> None:
    assert bound(("/r", one), ("/r/", other)).access_at("/r") is winner
    assert bound(("/r", other), ("/r", one)).access_at("/r") is winner


def test_a_repeated_rule_counts_once() -> None:
    assert len([rule for rule in bound(("/r", READ), ("/r/", READ)).rules if rule.path == "/r"]) == 1


def test_without_rules_nothing_is_allowed() -> None:
    nothing = bound()
    assert nothing.explain("/etc/passwd", READ) == PathDecision(
        False, None, "no rule allows it", "--allow-read /etc/passwd"
    )
    assert not nothing.full_read


@every_row(
    ("place", "where", "paths"),
    [
        (Place.ROOT, WHERE, {"/"}),
        (Place.PROJECT_ROOTS, Where("/c", ("/w", "/v", "/w/")), {"/w", "/v"}),
        (Place.PROJECT_ROOTS, Where("/c"), set()),
        (Place.TMPDIR, Where("/c", tmpdir="/t/"), {"/t"}),
        (Place.TMPDIR, Where("/c", tmpdir="rel"), {"/c/rel"}),
        (Place.TMPDIR, Where("/c", tmpdir=""), set()),
        (Place.TMPDIR, Where("/c", tmpdir=None), set()),
        (Place.SLASH_TMP, WHERE, {"/tmp"}),
        (Place.SLASH_TMP, Where("/c", slash_tmp=False), set()),
        (Place.UNKNOWN, WHERE, set()),
    ],
)
def test_a_symbolic_place_becomes_paths(place: Place, where: Where, paths: set[str]) -> None:
    assert {rule.path for rule in bound((Special(place), READ), where=where).rules} == paths


@pytest.mark.parametrize(("below", "path"), [("a/b", "/w/a/b"), (".", "/w"), ("./a", "/w/a")])
def test_a_place_below_each_workspace_root(below: str, path: str) -> None:
    assert bound((Special(Place.PROJECT_ROOTS, below), READ)).rules[0].path == path


@every_row(
    "rule",
    [
        Rule(At("relative"), READ),
        Rule(Special(Place.PROJECT_ROOTS, "../x"), READ),
        Rule(Special(Place.PROJECT_ROOTS, "/x"), READ),
        Rule(Glob("/w/*"), READ),
        Rule(Glob("/w/[z-a]"), DENY),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: Rule) -> None:
    with pytest.raises(UsageError):
        bind(Policy((rule,), Network.OFF), WHERE)


@pytest.mark.parametrize("where", [Where("relative"), Where("/w", ("relative",))])
def test_a_place_that_is_relative_is_refused(where: Where) -> None:
    with pytest.raises(UsageError):
        bind(policy(), where)


@every_row(
    ("rules", "full_read", "full_write"),
    [
        ([(ROOT, READ)], True, False),
        ([(ROOT, WRITE)], True, True),
        ([(ROOT, WRITE), (ROOT, READ)], True, True),
        ([(ROOT, WRITE), ("/a", WRITE), (MINIMAL, READ)], True, True),
        ([(ROOT, WRITE), ("/a", READ), ("/a", WRITE)], True, True),
        ([(ROOT, WRITE), ("/a", READ)], True, False),
        ([(ROOT, WRITE), ("/a", DENY)], False, False),
        ([(ROOT, WRITE), (ROOT, DENY)], False, False),
        ([(ROOT, WRITE), (Glob("/a/*"), DENY)], False, False),
        ([(ROOT, READ), (Glob("/a/*"), DENY)], False, False),
        ([("/", WRITE)], True, False),
        ([("/", WRITE), (ROOT, READ)], True, False),
        ([("/a", READ)], False, False),
        ([(ROOT, WRITE), (Special(Place.UNKNOWN), DENY)], True, True),
    ],
)
def test_full_access_needs_the_root_and_nothing_that_narrows(
    rules: list[tuple[At | Glob | Special | str, Access]], *, full_read: bool, full_write: bool
) -> None:
    assert (bound(*rules).full_read, bound(*rules).full_write) == (full_read, full_write)


@pytest.mark.parametrize("kind", [PolicyKind.DISABLED, PolicyKind.EXTERNAL])
def test_only_a_managed_policy_restricts_files(kind: PolicyKind) -> None:
    free = bind(Policy((Rule(At("/a"), READ),), Network.OFF, kind), WHERE)
    assert free.full_write
    assert free.explain("/x", WRITE).allowed
    assert free.network is (Network.ON if kind is PolicyKind.DISABLED else Network.OFF)


def test_every_writable_root_protects_its_metadata_at_its_top_level_only() -> None:
    rules = bound((WORKSPACE, WRITE), ("/w/sub", WRITE), ("/w/ro", READ)).rules
    protected = {rule.path: rule.protects for rule in rules if rule.protects is not None}
    assert protected == {f"{top}/{name}": top for top in ("/w", "/w/sub") for name in PROTECTED_NAMES}
    assert all(rule.access is READ for rule in rules if rule.path in (*protected, "/w/ro"))


def test_a_denied_root_protects_nothing() -> None:
    assert {rule.path for rule in bound(("/w", WRITE), ("/w", DENY)).rules} == {"/w"}


def test_an_explicit_write_rule_lifts_the_protection() -> None:
    lifted = bound(("/w", WRITE), ("/w/.git", WRITE))
    assert accesses(lifted, "/w/.git/config", "/w/.codex") == [WRITE, READ]


def test_a_write_rule_below_metadata_lifts_the_protection_only_there() -> None:
    lifted = bound(("/w", WRITE), ("/w/.git/objects", WRITE))
    assert accesses(lifted, "/w/.git/objects/a", "/w/.git/config") == [WRITE, READ]
    assert accesses(lifted, "/w/.git/objects/.git") == [WRITE]


def test_an_explicit_rule_for_metadata_stays_as_it_is() -> None:
    assert bound(("/w", WRITE), ("/w/.git", DENY)).access_at("/w/.git/x") is DENY


def test_the_root_as_workspace_is_writable_and_protected() -> None:
    everything = bound((WORKSPACE, WRITE), where=Where("/", ("/",)))
    assert accesses(everything, "/etc/x", "/.git/x") == [WRITE, READ]
    assert not everything.full_write


def test_the_platform_is_readable_when_asked_for_and_not_everything_is() -> None:
    minimal = bound((MINIMAL, READ), (WORKSPACE, WRITE))
    assert minimal.minimal
    assert accesses(minimal, *PLATFORM_ROOTS) == [READ] * len(PLATFORM_ROOTS)
    assert minimal.access_at("/home") is DENY


def test_name_resolution_belongs_to_the_platform_when_the_network_is_on() -> None:
    def resolver(network: Network) -> bool:
        rules = bind(policy((MINIMAL, READ), network=network), WHERE).rules
        return "/etc/resolv.conf" in {rule.path for rule in rules}

    assert [resolver(network) for network in (Network.ON, Network.OFF)] == [True, False]


@pytest.mark.parametrize("rules", [[(MINIMAL, DENY)], [(MINIMAL, READ), (ROOT, READ)], [(ROOT, READ)]])
def test_the_platform_is_not_added_where_it_is_denied_or_readable(
    rules: list[tuple[At | Glob | Special | str, Access]],
) -> None:
    assert not bound(*rules).minimal


def test_the_platform_neither_narrows_nor_opens_what_a_rule_says() -> None:
    rules = bound((MINIMAL, READ), ("/nix", WRITE), ("/run", DENY), ("/usr", DENY), (ROOT, DENY))
    paths = ("/nix/store/a", "/run/current-system/sw/a", "/usr/a", "/bin/a")
    assert accesses(rules, *paths) == [WRITE, DENY, DENY, READ]


EXPLAINED = bound(
    (ROOT, READ),
    (WORKSPACE, WRITE),
    (Special(Place.TMPDIR), WRITE),
    ("/w/conf", READ),
    ("/w/secret", DENY),
    ("/opt/my cache", WRITE),
    (Glob("/w/**/*.env"), DENY),
    (Special(Place.PROJECT_ROOTS, ".codex"), READ),
    where=Where("/w", ("/w",), tmpdir="/t"),
)


@every_row(
    ("path", "access", "allowed", "why", "grant"),
    [
        ("/w/x", WRITE, True, "inside the workspace root /w, which is writable", None),
        ("x", WRITE, True, "inside the workspace root /w, which is writable", None),
        ("/w", READ, True, "the workspace root /w is writable", None),
        ("/t/x", WRITE, True, "inside the temporary directory /t, which is writable", None),
        ("/opt/my cache/x", WRITE, True, "inside /opt/my cache, which is writable", None),
        ("/w/.git/config", WRITE, False, "/w/.git is protected metadata of the workspace root /w",
         "--allow-write /w/.git/config"),
        ("/w/.codex", WRITE, False, "/w/.codex is protected metadata of the workspace root /w",
         "--allow-write /w/.codex"),
        ("/t/.agents", WRITE, False, "/t/.agents is protected metadata of the temporary directory /t",
         "--allow-write /t/.agents"),
        ("/t/.aws", WRITE, False, "/t/.aws is protected metadata of the temporary directory /t", None),
        ("/w/.git/config", READ, True, "inside /w/.git, which is read-only", None),
        ("/w/conf/x", WRITE, False, "inside /w/conf, which is read-only", "--allow-write /w/conf/x"),
        ("/w/secret", READ, False, "/w/secret is denied", None),
        ("/w/secret/it's", READ, False, "inside /w/secret, which is denied",
         "--allow-read '/w/secret/it'\"'\"'s'"),
        ("/w/a/.env", READ, False, "it matches the denied pattern /w/**/*.env", None),
        ("/etc/x", READ, True, "everything is readable", None),
        ("/etc/x", WRITE, False, "outside the writable roots /t, /w, /opt/my cache", "--allow-write /etc/x"),
    ],
)  # fmt: skip
def test_a_decision_is_explained(
    path: str, access: Access, *, allowed: bool, why: str, grant: str | None
) -> None:
    decision = EXPLAINED.explain(path, access)
    assert (decision.allowed, decision.why, decision.grant) == (allowed, why, grant)


def test_a_decision_names_the_rule_as_it_was_written() -> None:
    assert EXPLAINED.explain("/w/.git/x", WRITE).rule == Rule(WORKSPACE, WRITE)
    assert EXPLAINED.explain("/w/a.env", READ).rule == Rule(Glob("/w/**/*.env"), DENY)


def test_a_read_only_policy_and_the_platform_are_explained() -> None:
    assert bound((ROOT, READ)).explain("/x", WRITE).why == "no rule allows writing anywhere"
    why = bound((MINIMAL, READ)).explain("/usr/x", READ).why
    assert why == "inside the platform directory /usr, which is read-only"


def test_denying_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError):
        EXPLAINED.explain("/x", DENY)


def test_builders_add_rules_and_leave_the_original_alone() -> None:
    base = policy((ROOT, READ))
    built = base.allow_write("/a").allow_read("/b").deny("/c").deny_glob("/d/*").with_network(Network.ON)
    expected = policy(
        (ROOT, READ), ("/a", WRITE), ("/b", READ), ("/c", DENY), (Glob("/d/*"), DENY), network=Network.ON
    )
    assert built == expected
    assert base == policy((ROOT, READ))


def test_denying_something_of_an_unrestricted_policy_restricts_it() -> None:
    free = Policy(None, Network.ON, PolicyKind.DISABLED)
    assert free.allow_write("/a").allow_read("/b") == free
    denied = bind(free.deny("/a"), WHERE)
    assert accesses(denied, "/a", "/b") == [DENY, WRITE]
    assert (denied.kind, denied.network) == (PolicyKind.MANAGED, Network.ON)


def writable(policy: BoundPolicy) -> set[str]:
    return {rule.path for rule in policy.rules if policy.access_at(rule.path) is WRITE}


ON_A_MACHINE = Where("/w", ("/w",), tmpdir="/var/tmp/me")


def test_read_only_reads_everything_and_writes_nothing() -> None:
    bound = bind(read_only(), ON_A_MACHINE)
    assert bound.full_read
    assert not writable(bound)
    assert bound.network is Network.OFF
    assert not bound.explain("/w/x", Access.WRITE).allowed


def test_full_access_restricts_nothing() -> None:
    bound = bind(full_access(), ON_A_MACHINE)
    assert bound.full_read
    assert bound.full_write
    assert bound.network is Network.ON


def test_workspace_write_writes_the_workspace_temporary_and_extra_paths() -> None:
    bound = bind(workspace_write(["/cache"], network=Network.ON), ON_A_MACHINE)
    assert bound.full_read
    assert bound.network is Network.ON
    assert writable(bound) == {"/cache", "/tmp", "/w", "/var/tmp/me"}


@every_row("name", [".git", ".agents", ".codex", ".aws"])
@every_row("root", ["/w", "/tmp", "/cache"])
def test_workspace_write_protects_the_metadata_of_every_root(root: str, name: str) -> None:
    bound = bind(workspace_write(["/cache"]), ON_A_MACHINE)
    assert not bound.explain(f"{root}/{name}/x", Access.WRITE).allowed
    assert bound.explain(f"{root}/{name}/x", Access.READ).allowed
    assert bound.explain(f"{root}/sub/{name}/x", Access.WRITE).allowed


def test_temporary_directories_can_be_left_out() -> None:
    bound = bind(workspace_write(tmpdir=False, slash_tmp=False), ON_A_MACHINE)
    assert writable(bound) == {"/w"}
