"""From rules and what lies on the disk to steps; and the plans that must not be made."""

from collections.abc import Mapping

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.plan.plan import Base, Plan, PlanLink
from holdfast.sandbox.plan.planner import (
    Crossing,
    DiskSnapshot,
    FoundKind,
    GitDir,
    PatternMatch,
    Sight,
    plan_for,
    settle,
)
from holdfast.sandbox.policy.paths import absolute, join, parent
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    BoundPolicy,
    Glob,
    Network,
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
ROOT, WORKSPACE, MINIMAL = (Special(place) for place in (Place.ROOT, Place.PROJECT_ROOTS, Place.MINIMAL))
WHERE = Where("/w", ("/w",), slash_tmp=False)
DIRECTORY, FILE, HIDDEN = FoundKind.DIRECTORY, FoundKind.FILE, FoundKind.OUT_OF_SIGHT

Tree = Mapping[str, FoundKind | str]  # a string is the text of a symbolic link


def trace(tree: Tree, path: str, links: tuple[Crossing, ...] = ()) -> Sight:
    """Follow a path in the tree; directories above what it names are there."""
    known = {"/", *(above for at in tree for above in (parent(at), parent(parent(at))))}
    real = "/"
    parts = [part for part in path.split("/") if part]
    for number, part in enumerate(parts):
        here = join(real, part)
        rest = "/".join(parts[number + 1 :])
        found = tree.get(here, DIRECTORY if here in known else None)
        if isinstance(found, str):
            return trace(tree, absolute(join(found, rest), real), (*links, Crossing(here, found)))
        if found in (None, HIDDEN):
            return Sight(join(here, rest).rstrip("/"), found or FoundKind.MISSING, links)
        real = here
    return Sight(real, tree[real] if isinstance(tree.get(real), FoundKind) else DIRECTORY, links)  # type: ignore[arg-type]  # a link never ends a trace


def look(
    bound: BoundPolicy, tree: Tree, *, matches: tuple[str, ...] = (), gitdirs: tuple[GitDir, ...] = ()
) -> DiskSnapshot:
    paths = {rule.path for rule in bound.rules} | {rule.protects for rule in bound.rules if rule.protects}
    paths |= {glob.pattern.root for glob in bound.globs} | {gitdir.path for gitdir in gitdirs}
    return DiskSnapshot(
        "/w",
        {path: trace(tree, path) for path in paths},
        tuple(PatternMatch(bound.globs[0], path, trace(tree, path)) for path in matches),
        gitdirs,
    )


def policy(*rules: tuple[At | Glob | Special | str, Access]) -> Policy:
    targets = ((At(target) if isinstance(target, str) else target, access) for target, access in rules)
    return Policy(tuple(Rule(target, access) for target, access in targets), Network.OFF)


def plan(policy: Policy, tree: Tree, *, matches: tuple[str, ...] = (), where: Where = WHERE) -> Plan:
    bound = bind(policy, where)
    return plan_for(bound, look(bound, tree, matches=matches))


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(step.kind.value, step.path) for step in plan.steps]


def names(root: str, *present: str) -> tuple[str, ...]:
    """The protected names of a root that are absent."""
    return tuple(join(root, name) for name in (".agents", ".aws", ".codex", ".git") if name not in present)


@pytest.mark.parametrize("network", list(Network))
def test_full_write_leaves_the_view_alone(network: Network) -> None:
    for free in (Policy(None, network), Policy(None, network, PolicyKind.EXTERNAL), policy((ROOT, WRITE))):
        made = plan(free.with_network(network), {})
        assert made == Plan(Base.UNTOUCHED, (), network is Network.OFF, "/w")
    assert not plan(full_access(), {}).network_off


def test_a_read_only_policy_needs_no_steps() -> None:
    assert plan(read_only(), {}) == Plan(Base.HOST, (), network_off=True, cwd="/w")


def test_a_workspace_is_writable_and_its_metadata_is_not() -> None:
    made = plan(workspace_write(), {"/w": DIRECTORY, "/w/.git": DIRECTORY, "/w/.aws": FILE})
    assert made.base is Base.HOST
    assert steps(made) == [("writable", "/w"), ("read-only", "/w/.aws"), ("read-only", "/w/.git")]
    assert made.absent == names("/w", ".git", ".aws")


def test_a_write_rule_lifts_the_protection_of_missing_metadata_too() -> None:
    made = plan(workspace_write(["/w/.git"]), {"/w": DIRECTORY})
    assert made.absent == names("/w", ".git")


def test_ancestors_of_what_is_protected_or_hidden_are_pinned_first() -> None:
    rules = policy((ROOT, READ), ("/w", WRITE), ("/w/a/b/locked", READ), ("/w/a/key", DENY), ("/w/top", DENY))
    tree: Tree = {"/w/a/b/locked": DIRECTORY, "/w/a/key": FILE, "/w/top": DIRECTORY, "/w": DIRECTORY}
    assert steps(plan(rules, tree)) == [
        ("pin", "/w/a"),
        ("pin", "/w/a/b"),
        ("writable", "/w"),
        ("mask-directory", "/w/top"),
        ("mask-file", "/w/a/key"),
        ("read-only", "/w/a/b/locked"),
    ]


def test_what_lies_outside_writable_paths_needs_no_pin() -> None:
    rules = policy((ROOT, READ), ("/x/y/secret", DENY), ("/x/y", READ))
    assert steps(plan(rules, {"/x/y/secret": FILE})) == [("mask-file", "/x/y/secret")]


def test_write_inside_deny_inside_write_is_granted_again() -> None:
    rules = policy((ROOT, READ), ("/w", WRITE), ("/w/a", DENY), ("/w/a/b/c", WRITE), ("/w/a/d", READ))
    tree: Tree = {"/w": DIRECTORY, "/w/a": DIRECTORY, "/w/a/b/c": DIRECTORY, "/w/a/d": DIRECTORY}
    assert steps(plan(rules, tree)) == [
        ("writable", "/w"),
        ("mask-directory", "/w/a"),
        ("readable", "/w/a/d"),
        ("writable", "/w/a/b/c"),
    ]


def test_a_writable_root_inside_another_is_no_step_but_its_metadata_is_pinned() -> None:
    rules = policy((ROOT, READ), ("/w", WRITE), ("/w/a/sub", WRITE))
    made = plan(rules, {"/w": DIRECTORY, "/w/a/sub/.git": DIRECTORY, "/w/a/sub": DIRECTORY})
    assert steps(made) == [
        ("pin", "/w/a"),
        ("pin", "/w/a/sub"),
        ("writable", "/w"),
        ("read-only", "/w/a/sub/.git"),
    ]
    assert made.absent == (*names("/w"), *names("/w/a/sub", ".git"))


def test_the_root_itself_can_be_the_workspace() -> None:
    rules = workspace_write(["/etc/a"]).deny("/secret")
    made = plan(rules, {"/secret": FILE}, where=Where("/", ("/",), slash_tmp=False))
    assert made.base is Base.HOST
    assert steps(made) == [("writable", "/"), ("mask-file", "/secret")]


def test_restricted_reading_starts_from_nothing() -> None:
    rules = policy((MINIMAL, READ), (WORKSPACE, WRITE), ("/usr/secret", DENY), (ROOT, DENY), ("/gone", READ))
    tree: Tree = {
        "/usr": DIRECTORY,
        "/usr/secret": FILE,
        "/usr/bin": DIRECTORY,
        "/bin": "usr/bin",
        "/w": DIRECTORY,
    }
    made = plan(rules, tree)
    assert made.base is Base.EMPTY
    assert steps(made) == [("readable", "/usr"), ("writable", "/w"), ("mask-file", "/usr/secret")]
    assert made.links == (PlanLink("/bin", "usr/bin"),)


def test_a_link_that_a_step_shows_is_not_made_again() -> None:
    tree: Tree = {"/etc/alternatives": DIRECTORY, "/etc/current": "/opt/v1", "/opt/v1": DIRECTORY}
    made = plan(policy(("/etc", READ), ("/etc/current", READ)), tree)
    assert (steps(made), made.links) == ([("readable", "/etc"), ("readable", "/opt/v1")], ())


def test_platform_links_do_not_open_or_narrow_what_rules_say() -> None:
    tree: Tree = {"/usr/bin": DIRECTORY, "/bin": "usr/bin", "/usr": DIRECTORY}
    assert steps(plan(policy((MINIMAL, READ), ("/usr", DENY)), tree)) == []
    assert steps(plan(policy((MINIMAL, READ), ("/usr", WRITE)), tree)) == [("writable", "/usr")]


def test_a_root_given_as_a_link_is_planned_where_it_leads() -> None:
    tree: Tree = {"/home/w": "/data/w", "/data/w": DIRECTORY, "/data/w/.git": DIRECTORY}
    made = plan(workspace_write(), tree, where=Where("/home/w", ("/home/w",), slash_tmp=False))
    assert steps(made) == [("writable", "/data/w"), ("read-only", "/data/w/.git")]
    assert made.absent == names("/data/w", ".git")


def test_two_spellings_of_one_path_count_by_the_stricter_rule() -> None:
    tree: Tree = {"/link": "/real", "/real": DIRECTORY, "/real/.git": DIRECTORY}
    made = plan(policy((ROOT, READ), ("/link", WRITE), ("/real", DENY)), tree)
    assert steps(made) == [("mask-directory", "/real")]


def test_missing_paths_are_skipped_outside_and_watched_inside_writable_ones() -> None:
    rules = policy(
        (ROOT, READ), ("/w", WRITE), ("/w/no/secret", DENY), ("/no", DENY), ("/gone", WRITE), ("/w/ro", READ)
    )
    made = plan(rules, {"/w": DIRECTORY})
    assert steps(made) == [("writable", "/w")]
    assert made.absent == (*names("/w"), "/w/no/secret", "/w/ro")


def test_a_missing_path_that_may_be_skipped_is_skipped() -> None:
    rules = read_only().allow_write("/w").rules or ()
    skipping = Policy((*rules, Rule(At("/w/x"), DENY, skip_missing=True)), Network.OFF)
    assert plan(skipping, {"/w": DIRECTORY}).absent == names("/w")


def test_a_denied_path_at_which_nothing_is_is_to_be_hidden_later() -> None:
    rules = policy(
        (ROOT, READ),
        ("/w", WRITE),
        ("/w/no/secret", DENY),
        ("/no", DENY),
        ("/shut", DENY),
        ("/shut/no", DENY),
    )
    assert plan(rules, {"/w": DIRECTORY, "/shut": DIRECTORY}).later == ("/no", "/w/no/secret")


def test_what_may_be_skipped_is_hidden_later_only_where_the_command_cannot_make_it() -> None:
    rules = read_only().allow_write("/w").rules or ()
    skipped = tuple(Rule(At(path), DENY, skip_missing=True) for path in ("/w/home", "/home"))
    assert plan(Policy((*rules, *skipped), Network.OFF), {"/w": DIRECTORY}).later == ("/home",)


def test_a_writable_file_has_no_metadata() -> None:
    assert plan(read_only().allow_write("/w/file"), {"/w/file": FILE}).absent == ()


def test_the_directories_behind_a_git_file_are_protected_where_they_are_writable() -> None:
    bound = bind(read_only().allow_write("/w").allow_write("/main"), WHERE)
    tree: Tree = {"/w": DIRECTORY, "/w/.git": FILE, "/main/x/git": DIRECTORY, "/else/git": DIRECTORY}
    gitdirs = (GitDir("/w/.git", "/main/x/git"), GitDir("/w/.git", "/else/git"))
    seen = look(bound, {**tree, "/main": DIRECTORY}, gitdirs=gitdirs)
    assert steps(plan_for(bound, seen)) == [
        ("pin", "/main/x"),
        ("writable", "/main"),
        ("writable", "/w"),
        ("read-only", "/w/.git"),
        ("read-only", "/main/x/git"),
    ]
    assert settle(bound, seen).explain("/main/x/git/config", WRITE).why == (
        "/main/x/git is protected metadata of /w"
    )


@every_row(
    ("rule", "tree"),
    [
        (("/w/link", DENY), {"/w/link": "/etc/x", "/etc/x": FILE}),
        (("/w/link/key", DENY), {"/w/link": "real", "/w/real/key": FILE}),
        (("/w/link", READ), {"/w/link": "/etc/x", "/etc/x": FILE}),
        (("/w/link/gone", DENY), {"/w/link": "real", "/w/real": DIRECTORY}),
        (("/w/link", WRITE), {"/w/link": "/home", "/home": DIRECTORY}),
        (("/w", WRITE), {"/w/.git": "/data/git", "/data/git": DIRECTORY}),
        (("/w", WRITE), {"/w/.codex": "/nowhere"}),
        ((Glob("/w/link/*"), DENY), {"/w/link": "/etc/x", "/etc/x": DIRECTORY}),
    ],
)
def test_a_link_that_the_command_could_replace_is_refused(
    rule: tuple[str | Glob, Access], tree: Tree
) -> None:
    with pytest.raises(SandboxUnavailable, match="because it crosses writable symlink /w/"):
        plan(policy((ROOT, READ), ("/w", WRITE), rule), {"/w": DIRECTORY, **tree})


def test_the_refusal_of_a_link_says_what_crosses_what() -> None:
    rules = policy(("/w", WRITE), ("/w/a", DENY))
    tree: Tree = {"/w": DIRECTORY, "/w/a": "/x", "/x": FILE}
    text = "cannot enforce sandbox deny-read path /w/a because it crosses writable symlink /w/a"
    with pytest.raises(SandboxUnavailable) as caught:
        plan(rules, tree)
    assert str(caught.value) == text


def test_a_git_file_that_points_through_a_replaceable_link_is_refused() -> None:
    bound = bind(read_only().allow_write("/w"), WHERE)
    tree: Tree = {"/w": DIRECTORY, "/w/.git": FILE, "/w/link": "/data/git", "/data/git": DIRECTORY}
    with pytest.raises(SandboxUnavailable):
        plan_for(bound, look(bound, tree, gitdirs=(GitDir("/w/.git", "/w/link"),)))


def test_a_writable_path_through_a_replaceable_link_may_lead_to_what_is_writable_anyway() -> None:
    tree: Tree = {"/w": DIRECTORY, "/w/cache": "real", "/w/real": DIRECTORY, "/w/gone": "/nowhere"}
    made = plan(read_only().allow_write("/w").allow_write("/w/cache").allow_write("/w/gone"), tree)
    assert steps(made) == [("writable", "/w")]


def test_metadata_behind_a_replaceable_root_is_refused() -> None:
    tree: Tree = {"/tmp": DIRECTORY, "/tmp/link": "real", "/tmp/real/.git": DIRECTORY}
    with pytest.raises(SandboxUnavailable):
        plan(workspace_write(["/tmp"]), tree, where=Where("/tmp/link", ("/tmp/link",)))


def test_a_link_in_a_read_only_directory_of_the_workspace_is_not_replaceable() -> None:
    tree: Tree = {"/w": DIRECTORY, "/w/ro/link": "/etc/x", "/etc/x": FILE, "/w/ro": DIRECTORY}
    rules = policy((ROOT, READ), ("/w", WRITE), ("/w/ro", READ), ("/w/ro/link", DENY))
    assert ("mask-file", "/etc/x") in steps(plan(rules, tree))


@pytest.mark.parametrize("rule", [("/w/shut/key", DENY), (Glob("/w/shut/x/*"), DENY)])
def test_what_cannot_be_looked_at_inside_a_writable_path_is_refused(rule: tuple[str | Glob, Access]) -> None:
    tree: Tree = {"/w": DIRECTORY, "/w/shut": HIDDEN}
    with pytest.raises(SandboxUnavailable, match="cannot be looked at"):
        plan(policy((ROOT, READ), ("/w", WRITE), rule), tree)
    assert steps(plan(policy((ROOT, READ), rule), tree)) == []


def test_what_a_pattern_matches_is_hidden_whatever_the_rules_say() -> None:
    rules = policy((ROOT, READ), ("/w", WRITE), ("/w/a.env/x", WRITE), (Glob("/w/*.env"), DENY))
    tree: Tree = {"/w": DIRECTORY, "/w/a.env/x": DIRECTORY, "/w/b.env": FILE, "/w/a.env": DIRECTORY}
    assert steps(plan(rules, tree, matches=("/w/a.env", "/w/b.env"))) == [
        ("writable", "/w"),
        ("mask-directory", "/w/a.env"),
        ("mask-file", "/w/b.env"),
    ]


def test_a_matching_link_is_hidden_where_it_leads() -> None:
    rules = policy((ROOT, READ), ("/w", WRITE), (Glob("/w/*.env"), DENY))
    tree: Tree = {"/w": DIRECTORY, "/w/a.env": "/etc/real", "/etc/real": FILE, "/w/b.env": "/nowhere"}
    made = plan(rules, tree, matches=("/w/a.env", "/w/b.env"))
    assert steps(made) == [("writable", "/w"), ("mask-file", "/etc/real")]


@pytest.mark.parametrize("target", ["/", "/w", "."])
def test_a_matching_link_to_what_the_policy_allows_is_refused(target: str) -> None:
    rules = policy((ROOT, READ), ("/w", WRITE), (Glob("/w/*.env"), DENY))
    with pytest.raises(SandboxUnavailable, match=r"a\.env"):
        plan(rules, {"/w": DIRECTORY, "/w/a.env": target}, matches=("/w/a.env",))


def test_a_settled_policy_is_asked_about_real_paths() -> None:
    rules = read_only().allow_write("/home/w").allow_read("/home/w/x.env/y").deny_glob("/home/w/*.env")
    tree: Tree = {
        "/home/w": "/data/w",
        "/data/w/x.env/y": FILE,
        "/data/w": DIRECTORY,
        "/data/w/x.env": DIRECTORY,
    }
    bound = bind(rules, WHERE)
    settled = settle(bound, look(bound, tree, matches=("/data/w/x.env",)))
    asked = {
        path: settled.explain(path, WRITE).allowed for path in ("/data/w/a", "/home/w/a", "/data/w/.git")
    }
    assert asked == {"/data/w/a": True, "/home/w/a": False, "/data/w/.git": False}
    assert not settled.explain("/data/w/x.env/y", READ).allowed
    assert not settled.explain("/data/w/new.env", READ).allowed


def test_an_unrestricted_policy_settles_as_it_is() -> None:
    bound = bind(full_access(), WHERE)
    assert settle(bound, look(bound, {})) == bound


def test_a_denied_file_with_other_names_is_told() -> None:
    bound = bind(read_only().deny("/w/key").deny("/w/dir").deny_glob("/w/*.env"), WHERE)
    seen = DiskSnapshot(
        "/w",
        {
            "/": Sight("/", DIRECTORY),
            "/w": Sight("/w", DIRECTORY),
            "/w/key": Sight("/w/key", FILE, names=2),
            "/w/dir": Sight("/w/dir", DIRECTORY),
        },
        (PatternMatch(bound.globs[0], "/w/a.env", Sight("/w/a.env", FILE, names=1)),),
    )
    assert [line.split()[0] for line in plan_for(bound, seen).open_names] == ["/w/key"]


def test_only_what_can_be_looked_at_exists() -> None:
    assert [found for found in FoundKind if Sight("/a", found).exists] == [
        FoundKind.FILE,
        FoundKind.DIRECTORY,
    ]
