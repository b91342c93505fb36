"""Profiles for macOS: what each allows, read by a reader of its own, and those that must not be made."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.policy import Bound, Glob, Kind, Network, Policy, Rule, Where, bind
from holdfast.sandbox.presets import full_access, read_only, workspace_write
from holdfast.sandbox.seatbelt import SANDBOX_EXEC, SeatbeltProfile, command, profile
from holdfast.sandbox.seen import GitDir, Match, Seen, Sight
from holdfast.values import replace
from tests.support.rows import every_row
from tests.support.seatbelt import Asked, allowed
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


# What each letter asks for, of the path beside it: read, see that it is there, write, remove or rename.
LETTERS = {"r": "file-read-data", "s": "file-read-metadata", "w": "file-write-data", "u": "file-write-unlink"}
READ_ONLY = {
    "/etc/hosts": "rs",
    "/Users/me/w/f": "rs",
    "/Users/me/w/.git/config": "rs",
    "/private/tmp/f": "rs",
}
WORKSPACE = {
    "/private/etc/hosts": "rs",
    "/Users/me/f": "rs",
    "/Users/me/w": "rsw",  # it cannot be moved away
    "/Users/me/w/f": "rswu",
    "/Users/me/w/sub/.git": "rswu",  # only the workspace's own
    "/Users/me/w/.git": "rs",
    "/Users/me/w/.git/config": "rs",
    "/Users/me/w/.GIT/config": "rs",  # the file system does not tell letters of two sizes apart
    "/Users/me/w/.github": "rswu",
    "/Users/me/w/.codex/config.toml": "rs",
    "/Users/me/w/.agents": "rs",
    "/Users/me/wx": "rs",  # begins like it and is another
    "/private/tmp/f": "rswu",
    "/private/var/folders/T/f": "rswu",
    "/private/var/folders/U": "rs",
}
MAY: dict[str, dict[str, str]] = {
    "read-only": READ_ONLY,
    "workspace-write": WORKSPACE,
    "full-write-network-off": {"/etc/hosts": "rswu", "/Users/me/w/.git/config": "rswu", "/dev/disk0": "rswu"},
    "full-access": {"/etc/hosts": "rswu", "/Users/me/w/.git/config": "rswu", "/dev/disk0": "rswu"},
    "minimal": {
        "/": "rs",
        "/Users": "s",
        "/Users/me": "s",
        "/Users/me/.ssh/id": "",
        "/Users/you": "",
        "/Users/me/w/f": "rswu",
        "/Users/me/w/.git/config": "rs",
        "/usr/bin/env": "rs",
        "/usr/local": "",
        "/usr/local/bin/x": "",
        "/bin/sh": "rs",
        "/private/etc/hosts": "rs",
        "/private/var/db/secret": "",
        "/opt/x": "",
    },
    "deny-globs": {
        "/Users/me/w/f": "rswu",
        "/Users/me/w/.env": "",
        "/Users/me/w/a/b/prod.env": "",
        "/Users/me/w/a/b/prod.env/below": "",
        "/Users/me/w/a/b/prod.environment": "rswu",
        "/Users/me/w/conf": "rsw",
        "/Users/me/w/conf/ka1/x.pem": "",
        "/Users/me/w/conf/kd1/x.pem": "rswu",
        "/Users/me/w/conf/ka1/sub/x.pem": "rswu",
        "/Users/me/.ssh": "",
        "/Users/me/.ssh/id": "",
        "/Users/me/.netrc": "",
        "/Users/me/.sshx": "rs",
    },
    "nested": {
        "/Users/me/other.txt": "rs",
        "/Users/me/notes.txt": "rswu",
        "/Users/me/w/f": "rswu",
        "/Users/me/w/a": "s",
        "/Users/me/w/a/f": "",
        "/Users/me/w/a/b": "rsw",
        "/Users/me/w/a/b/f": "rswu",
        "/Users/me/w/a/b/locked": "rs",
        "/Users/me/w/a/b/locked/f": "rs",
        "/Users/me/w/conf": "rsw",
        "/Users/me/w/conf/deep": "rsw",
        "/Users/me/w/conf/deep/f": "rswu",
        "/Users/me/w/conf/deep/locked/f": "rs",
    },
    "loopback-ports": READ_ONLY,
    "network-on": WORKSPACE,
}
BASE_SERVICES = {"com.apple.system.opendirectoryd.libinfo", "com.apple.PowerManagement.control"}
START_SERVICES = {"com.apple.logd", "com.apple.system.logger", "com.apple.system.notification_center"}
NETWORK_SERVICES = {
    "com.apple.SecurityServer",
    "com.apple.SystemConfiguration.DNSConfiguration",
    "com.apple.SystemConfiguration.configd",
    "com.apple.bsd.dirhelper",
    "com.apple.networkd",
    "com.apple.ocspd",
    "com.apple.system.opendirectoryd.membership",
    "com.apple.trustd",
    "com.apple.trustd.agent",
}
PREFERENCES = {
    "com.apple.cfprefsd.agent",
    "com.apple.cfprefsd.daemon",
}  # they tell what files of the user say
PARTLY_READABLE = {"minimal", "deny-globs", "nested"}
ONLINE = {"full-access", "network-on"}
WITH_PORTS = {"loopback-ports": {"localhost:8080", "localhost:3128"}}


def may(profile: SeatbeltProfile, operation: str, **about: Any) -> bool:
    """By both ways to read a profile: the last rule wins, and a rule for one operation wins over patterns."""
    asked = Asked(operation, **about)
    one, other = (
        allowed(profile.text, profile.parameters, asked, exact_last=exact_last)
        for exact_last in (False, True)
    )
    assert one == other, f"{asked} depends on the reading"
    return one


@every_row("name", CASES)
def test_a_profile_allows_what_it_is_for_and_nothing_else(name: str) -> None:
    wanted = CASES[name]()
    got = {
        path: "".join(letter for letter, asked in LETTERS.items() if may(wanted, asked, path=path))
        for path in MAY[name]
    }
    assert got == MAY[name]
    assert may(wanted, "file-write-data", path="/dev/null")
    assert may(wanted, "file-read-data", path="/dev/urandom")


def test_a_directory_that_may_hold_what_a_pattern_denies_is_not_moved_away() -> None:
    wanted = CASES["deny-globs"]()
    for path, movable in (("/Users/me/w/a", False), ("/Users/me/w/conf/ka1", False)):
        assert may(wanted, "file-write-unlink", path=path, directory=True) == movable, path
        assert may(wanted, "file-write-unlink", path=path), "a file may"


@every_row("name", CASES)
def test_a_profile_reaches_the_network_and_services_as_far_as_it_says(name: str) -> None:
    wanted = CASES[name]()
    targets = {"localhost:8080", "localhost:3128", "localhost:22", "192.0.2.1:443"}
    reached = targets if name in ONLINE else WITH_PORTS.get(name, set())
    assert {target for target in targets if may(wanted, "network-outbound", name=target)} == reached
    assert may(wanted, "network-bind") == may(wanted, "network-inbound") == (name in ONLINE)
    services = {
        str(shape[1]).strip('"')
        for shape in walk(read(wanted.text))
        if shape[0] in ("global-name", "local-name")
    }
    expected = BASE_SERVICES | (NETWORK_SERVICES if reached else set())
    expected |= set() if name in PARTLY_READABLE else PREFERENCES
    assert services == expected | (START_SERVICES if name == "minimal" else set())


@every_row("name", CASES)
def test_a_profile_lets_programs_start_and_touches_no_other(name: str) -> None:
    wanted = CASES[name]()
    assert may(wanted, "process-exec", path="/bin/sh")
    assert may(wanted, "process-fork")
    assert may(wanted, "signal", name="same-sandbox")
    assert not may(wanted, "signal", name="others")
    assert not may(wanted, "process-info-pidinfo", name="others")
    assert may(wanted, "sysctl-read", name="hw.ncpu")
    assert not may(wanted, "sysctl-read", name="kern.procargs2")
    assert not may(wanted, "sysctl-write", name="kern.hostname")
    for operation in ("mach-register", "system-privilege", "file-mount", "nvram-set", "iokit-set-properties"):
        assert not may(wanted, operation), operation


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
