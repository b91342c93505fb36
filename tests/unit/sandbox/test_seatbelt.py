"""Profiles for macOS: compared with golden files, and the profiles that must not be made.

To write the golden files anew: `python -m tests.unit.sandbox.test_seatbelt`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.policy import Bound, Glob, Kind, Network, Policy, Rule, Where, bind
from holdfast.sandbox.presets import full_access, read_only, workspace_write
from holdfast.sandbox.seatbelt import SANDBOX_EXEC, SeatbeltProfile, command, profile
from holdfast.sandbox.seen import GitDir, Match, Seen, Sight
from tests.support.rows import every_row
from tests.support.sexpr import Shape, read
from tests.unit.sandbox.test_planner import (
    DENY,
    DIRECTORY,
    FILE,
    HIDDEN,
    MINIMAL,
    READ,
    ROOT,
    WRITE,
    Tree,
    look,
    policy,
    trace,
)

GOLDEN = Path(__file__).parent / "golden"
WHERE = Where("/Users/me/w", ("/Users/me/w",), tmpdir="/var/folders/T")
MAC: Tree = {
    "/tmp": "/private/tmp",
    "/var": "/private/var",
    "/etc": "/private/etc",
    "/private/tmp": DIRECTORY,
    "/private/var/folders/T": DIRECTORY,
    "/private/etc": DIRECTORY,
    "/usr": DIRECTORY,
    "/bin": DIRECTORY,
    "/Users/me/w": DIRECTORY,
    "/Users/me/w/.git": DIRECTORY,
    "/Users/me/w/.codex": DIRECTORY,
}
NESTED = policy(
    (ROOT, READ),
    ("/Users/me/w", WRITE),
    ("/Users/me/w/a", DENY),
    ("/Users/me/w/a/b", WRITE),
    ("/Users/me/w/a/b/locked", READ),
    ("/Users/me/w/conf/deep/locked", READ),
    ("/Users/me/notes.txt", WRITE),
)


def made(
    wish: Policy,
    *,
    tree: Tree | None = None,
    ports: tuple[int, ...] = (),
    managed: bool = False,
    where: Where = WHERE,
) -> SeatbeltProfile:
    bound = bind(wish, where)
    return profile(bound, look(bound, {**MAC, **(tree or {})}), loopback_ports=ports, managed=managed)


CASES: dict[str, Callable[[], SeatbeltProfile]] = {
    "read-only": lambda: made(read_only()),
    "workspace-write": lambda: made(workspace_write()),
    "full-write-network-off": lambda: made(Policy(None, Network.OFF, Kind.EXTERNAL)),
    "full-access": lambda: made(full_access()),
    "minimal": lambda: made(policy((MINIMAL, READ), ("/Users/me/w", WRITE), ("/usr/local", DENY))),
    "deny-globs": lambda: made(
        policy(
            (ROOT, READ),
            ("/Users/me/w", WRITE),
            (Glob("/Users/me/w/**/*.env"), DENY),
            (Glob("/Users/me/w/conf/k[a-c]?/*.pem"), DENY),
            (Glob("/Users/me/{.ssh,.netrc}"), DENY),
        )
    ),
    "nested": lambda: made(NESTED, tree={"/Users/me/notes.txt": FILE, "/Users/me/w/a/b/locked": DIRECTORY}),
    "loopback-ports": lambda: made(read_only(), ports=(8080, 3128, 8080)),
    "network-on": lambda: made(workspace_write(network=Network.ON)),
}


def golden(made: SeatbeltProfile) -> str:
    return made.text + "".join(f"; {key} = {value}\n" for key, value in made.parameters)


@every_row("name", CASES)
def test_a_profile_is_the_golden_one(name: str) -> None:
    assert golden(CASES[name]()) == (GOLDEN / f"{name}.sb").read_text("utf-8")


def test_there_is_no_golden_file_without_a_profile() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


@every_row("name", CASES)
def test_a_profile_refuses_by_default_and_names_every_parameter_once(name: str) -> None:
    wanted = CASES[name]()
    expressions = read(wanted.text)
    assert expressions[:2] == (("version", "1"), ("deny", "default"))
    used = {expression[1] for expression in walk(expressions) if expression[:1] == ("param",)}
    assert used == {f'"{key}"' for key, _ in wanted.parameters}
    assert len(used) == len(wanted.parameters)


def walk(shape: Shape) -> list[tuple[Shape, ...]]:
    if isinstance(shape, str):
        return []
    return [shape, *(inner for each in shape for inner in walk(each))]


def values(made: SeatbeltProfile, prefix: str) -> list[str]:
    return [value for key, value in made.parameters if key.startswith(prefix)]


def test_the_command_comes_after_the_profile_and_its_values() -> None:
    argv = command(SeatbeltProfile("(version 1)", (("A", "/a=b c"), ("B", "-p"))), ["-x", "y"])
    assert argv == (SANDBOX_EXEC, "-p", "(version 1)", "-DA=/a=b c", "-DB=-p", "--", "-x", "y")


def test_a_link_of_the_system_is_followed() -> None:
    wanted = made(workspace_write())
    assert values(wanted, "WRITABLE_ROOT_0") == ["/private/tmp", *metadata("/private/tmp")]
    assert "/tmp" not in dict(wanted.parameters).values()


def metadata(root: str) -> list[str]:
    return [f"{root}/{name}" for name in (".agents", ".aws", ".codex", ".git")]


@pytest.mark.parametrize("target", ["/Users/other", "/missing"])
def test_a_writable_root_behind_another_link_is_refused(target: str) -> None:
    tree: Tree = {"/Users/me/w": target, "/Users/other": DIRECTORY}
    with pytest.raises(SandboxUnavailable):
        made(policy((ROOT, READ), ("/Users/me/w", WRITE)), tree=tree)


def test_a_link_to_what_may_only_be_read_is_followed() -> None:
    tree: Tree = {"/Users/me/docs": "/Volumes/docs", "/Volumes/docs": DIRECTORY}
    wanted = made(policy((MINIMAL, READ), ("/Users/me/docs", READ)), tree=tree)
    assert "/Volumes/docs" in values(wanted, "READABLE_ROOT")
    assert {"/Users/me/docs", "/Users", "/Volumes", "/etc"} <= set(values(wanted, "READABLE_WAY"))


def test_metadata_behind_a_link_that_can_be_replaced_is_refused() -> None:
    with pytest.raises(SandboxUnavailable):
        made(workspace_write(), tree={"/Users/me/w/.git": "/Users/me/repo", "/Users/me/repo": DIRECTORY})


def test_a_root_that_is_missing_is_writable_when_it_comes_and_its_metadata_is_not() -> None:
    wanted = made(policy((ROOT, READ), ("/new", WRITE)))
    assert values(wanted, "WRITABLE_ROOT") == ["/new"]
    assert wanted.text.count('(require-not (regex #"^/new/') == 4


def test_a_file_has_no_metadata_and_may_be_removed() -> None:
    wanted = made(policy((ROOT, READ), ("/Users/me/f", WRITE)), tree={"/Users/me/f": FILE})
    assert values(wanted, "WRITABLE_ROOT") == ["/Users/me/f"]
    assert 'regex #"^/Users' not in wanted.text
    assert "file-write-unlink" not in wanted.text


def test_a_write_rule_lifts_the_protection_of_its_own_name_only() -> None:
    wanted = made(workspace_write(["/Users/me/w/.git"], slash_tmp=False, tmpdir=False))
    assert "[gG][iI][tT]" not in wanted.text
    assert "[cC][oO][dD][eE][xX]" in wanted.text
    assert values(wanted, "WRITABLE_ROOT_1") == ["/Users/me/w/.git"]


def test_the_directory_behind_a_git_file_is_protected_too() -> None:
    bound = bind(policy((ROOT, READ), ("/Users/me", WRITE)), replace(WHERE, cwd="/Users/me"))
    pointer = GitDir("/Users/me/.git", "/Users/me/main/.git/worktrees/w")
    tree: Tree = {**MAC, "/Users/me/.git": FILE, pointer.path: DIRECTORY}
    wanted = profile(bound, look(bound, tree, gitdirs=(pointer,)))
    assert pointer.path in values(wanted, "WRITABLE_ROOT_0_EXCLUDED")
    assert "/Users/me/main/.git" in values(wanted, "PROTECTED_ANCESTOR")


def test_what_the_platform_needs_is_excluded_where_it_is_denied() -> None:
    wanted = made(policy((MINIMAL, READ), ("/System/Library/Secret", DENY), ("/private/etc", DENY)))
    assert "/System/Library/Secret" in values(wanted, "READABLE_ROOT")
    roots = [value for key, value in wanted.parameters if key.startswith("READABLE_ROOT") and "EX" not in key]
    assert "/System/Library" in roots
    assert "/private/etc" not in roots


def test_reading_is_not_shown_what_is_missing() -> None:
    wanted = made(policy(("/Users/me/w", READ), ("/gone", READ), ("/coming", WRITE)))
    assert values(wanted, "READABLE_ROOT") == ["/coming", "/Users/me/w"]


def test_a_policy_that_allows_nothing_has_no_rule_for_files_of_its_own() -> None:
    wanted = made(Policy((), Network.OFF))
    assert wanted.parameters == ()
    assert "what may be" not in wanted.text


def test_preferences_are_for_those_who_may_read_everything() -> None:
    assert "cfprefsd" in made(read_only()).text
    assert "cfprefsd" not in made(read_only().deny("/Users/me/w")).text


@every_row("network", Network)
@every_row(("ports", "managed"), [((), True), ((0,), False), ((-1, 65536), True)])
def test_a_managed_network_without_a_port_is_no_network(
    network: Network, ports: tuple[int, ...], managed: bool
) -> None:
    assert "network" not in made(read_only(network), ports=ports, managed=managed).text


@pytest.mark.parametrize("network", Network)
def test_a_managed_network_is_its_ports_whatever_the_policy_says(network: Network) -> None:
    text = made(read_only(network), ports=(0, 65535)).text
    rules = [each for each in read(text) if not isinstance(each, str) and str(each[1]).startswith("network")]
    assert rules == [("allow", "network-outbound", ("remote", "ip", '"localhost:65535"'))]


def test_a_link_that_a_pattern_matches_is_denied_where_it_leads() -> None:
    bound = bind(policy((ROOT, READ), (Glob("/Users/me/w/*.env"), DENY)), WHERE)
    tree: Tree = {**MAC, "/Users/me/w/a.env": "/Users/me/plain", "/Users/me/plain": FILE}
    seen = look(bound, tree, matches=("/Users/me/w/a.env", "/Users/me/w/b.env"))
    assert values(profile(bound, seen), "READABLE_ROOT_0_EXCLUDED") == ["/Users/me/plain"]


def test_a_link_to_everything_that_a_pattern_matches_is_refused() -> None:
    bound = bind(policy((ROOT, READ), (Glob("/Users/me/w/*.env"), DENY)), WHERE)
    seen = Seen(
        "/Users/me/w",
        look(bound, MAC).sights,
        (
            Match(
                bound.globs[0],
                "/Users/me/w/a.env",
                trace({**MAC, "/Users/me/w/a.env": "/"}, "/Users/me/w/a.env"),
            ),
        ),
    )
    with pytest.raises(SandboxUnavailable):
        profile(bound, seen)


def test_a_rule_that_cannot_be_looked_at_is_refused_where_it_could_be_changed() -> None:
    bound = bind(policy((ROOT, READ), ("/Users/me/w", WRITE), ("/Users/me/w/x/y", DENY)), WHERE)
    seen = look(bound, MAC)
    hidden = {**seen.sights, "/Users/me/w/x/y": Sight("/Users/me/w/x/y", HIDDEN)}
    with pytest.raises(SandboxUnavailable):
        profile(bound, replace(seen, sights=hidden))


def test_a_policy_that_is_too_long_for_the_arguments_is_refused() -> None:
    many = tuple(Rule(Glob(f"/Users/me/w/{'x' * 3000}{number}*"), DENY) for number in range(200))
    bound: Bound = bind(Policy((*(read_only().rules or ()), *many), Network.OFF), WHERE)
    with pytest.raises(SandboxUnavailable):
        profile(bound, look(bound, MAC))


if __name__ == "__main__":
    for case, make in CASES.items():
        (GOLDEN / f"{case}.sb").write_text(golden(make()), "utf-8")
