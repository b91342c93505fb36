"""Whose file was refused, and what would help."""

import dataclasses

import pytest
from msgspec.structs import replace

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import Denied, Source
from holdfast.agents.worker.refusals import (
    MAX_UNFINISHED,
    RefusalTally,
    Strace,
    Whose,
    command_line,
    make_evidence,
    split,
    tells,
)
from holdfast.sandbox.policy.policy import BoundPolicy, Network, Where, bind, workspace_write
from holdfast.wire.processes import DeniedCall as Refusal
from tests.support.rows import every_row

REFUSAL = Refusal(
    process_id="worker",
    number=1,
    access="create",
    asked=".local",
    path="/home/x/.local/share/opencode/opencode.db",
    syscall="openat",
    errno="EROFS",
    predicted=False,
    pid=7,
    comm="opencode",
    count=2,
    at_ms=0,
    rule="outside the writable roots /w",
    grant="--allow-write /home/x/.local/share/opencode",
)
WHOSE = Whose(CATALOG["opencode"], home="/home/x", work="/w", state="/s", relocated=False)
WS = "/home/me/ws"
THERE = {"/", "/etc", "/etc/passwd", "/home", "/home/me", WS}


def denied(refusal: Refusal, whose: Whose = WHOSE) -> Denied:
    found = make_evidence(refusal, whose, 5.0)
    assert found.source is Source.DENIAL
    assert found.at == 5.0
    assert isinstance(found.claim, Denied)
    return found.claim


def test_a_path_of_the_clis_state_is_called_what_it_is_with_the_variable_that_moves_it() -> None:
    claim = denied(REFUSAL)
    assert "database" in claim.role
    assert claim.relocation == "XDG_DATA_HOME=/s/data"
    assert (claim.count, claim.rule, claim.grant) == (2, REFUSAL.rule, REFUSAL.grant)


def test_any_other_path_has_no_role() -> None:
    claim = denied(replace(REFUSAL, path="/etc/passwd"))
    assert (claim.role, claim.relocation) == ("", "")


def test_what_is_relocated_already_is_not_suggested_again() -> None:
    moved = dataclasses.replace(WHOSE, relocated=True)
    claim = denied(replace(REFUSAL, path="/s/data/opencode/opencode.db"), moved)
    assert "database" in claim.role
    assert claim.relocation == ""


def test_totals_become_what_is_new_also_for_whoever_takes_over() -> None:
    first = RefusalTally(())
    assert [first.fresh(replace(REFUSAL, count=count)) for count in (1, 3, 3, 7)] == [1, 2, 0, 4]
    item = make_evidence(replace(REFUSAL, count=7), WHOSE, 1.0)
    second = RefusalTally([item])
    assert [second.fresh(replace(REFUSAL, count=count)) for count in (7, 8)] == [0, 1]
    assert second.fresh(replace(REFUSAL, path="/other", count=2)) == 2


def bound(network: Network = Network.OFF) -> BoundPolicy:
    return bind(workspace_write().with_network(network).deny("/home/me/secret"), Where(WS, (WS,)))


@pytest.fixture
def reader() -> Strace:
    return Strace(bound(), THERE.__contains__)


def only(reader: Strace, *lines: str) -> Denied:
    [found] = [denied for line in lines if (denied := reader.feed(line)) is not None]
    return found


@pytest.mark.parametrize(
    ("line", "access", "path", "grant"),
    [
        (
            f'openat(AT_FDCWD<{WS}>, "/etc/new", O_RDWR|O_CREAT|O_CLOEXEC, 0777) = -1 EROFS (Read-only …)',
            *("create", "/etc/new", "--allow-write /etc"),
        ),
        (
            'openat(AT_FDCWD</etc>, "passwd", O_WRONLY) = -1 EROFS (Read-only file system)',
            *("write", "/etc/passwd", "--allow-write /etc/passwd"),
        ),
        (
            'rename("/etc/passwd", "/etc/passwd2") = -1 EROFS (Read-only file system)',
            *("create", "/etc/passwd2", "--allow-write /etc"),
        ),
        (
            'renameat2(AT_FDCWD</etc>, "passwd", 3</home/me>, "p", RENAME_NOREPLACE) = -1 EROFS (x)',
            *("create", "/home/me/p", "--allow-write /home/me"),
        ),
        (
            'unlinkat(3</etc>, "passwd", 0)    = -1 EROFS (Read-only file system)',
            *("remove", "/etc/passwd", "--allow-write /etc"),
        ),
        (
            'link("/etc/passwd", "/etc/p3")    = -1 EROFS (Read-only file system)',
            *("create", "/etc/p3", "--allow-write /etc"),
        ),
        (
            'symlink("a", "/etc/p4")           = -1 EROFS (Read-only file system)',
            *("create", "/etc/p4", "--allow-write /etc"),
        ),
        (
            'chmod("/etc/passwd", 0600)        = -1 EROFS (Read-only file system)',
            *("write", "/etc/passwd", "--allow-write /etc/passwd"),
        ),
        (
            'mkdir("/etc/../home/me/./e", 0777) = -1 EROFS (Read-only file system)',
            *("create", "/home/me/e", "--allow-write /home/me"),
        ),
        (
            f'mkdirat(AT_FDCWD<{WS}>, "../d", 0777) = -1 EROFS (Read-only file system)',
            *("create", "/home/me/d", "--allow-write /home/me"),
        ),
        (
            'bind(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/etc/s"}, 9) = -1 EROFS (Read-only …)',
            *("create", "/etc/s", "--allow-write /etc"),
        ),
        (
            'openat(AT_FDCWD</home/me>, "secret", O_RDONLY|O_CLOEXEC) = -1 EACCES (Permission denied)',
            *("read", "/home/me/secret", ""),
        ),
        ('execve("/home/me/secret", ["x"], 0x7ff /* 3 vars */) = -1 EACCES (Permission denied)',
         *("read", "/home/me/secret", "")),
    ],
)  # fmt: skip
def test_a_failed_call_is_a_denial_with_path_and_grant(
    reader: Strace, line: str, access: str, path: str, grant: str
) -> None:
    for prefix in ("", "31409 ", "[pid 31409] "):
        denied = only(reader, prefix + line + "\n")
        assert (denied.access, denied.path, denied.grant) == (access, path, grant)
        assert denied.rule
        assert denied.pid == (31409 if prefix else 0)
        assert denied.errno in line


def test_escapes_are_read_and_bytes_that_are_no_text_shown(reader: Strace) -> None:
    line = r'1 mkdir("/home/me/hfw\n \"quo\"t\303\251, \x41", 0777) = -1 EROFS (Read-only file system)'
    assert only(reader, line).path == '/home/me/hfw\n "quo"té, A'
    assert only(reader, r'1 mkdir("/etc/\377", 0777) = -1 EROFS (x)').path == r"/etc/\xff"


@pytest.mark.parametrize(
    "line",
    [
        'stat("/nope", 0x7ffc) = -1 ENOENT (No such file or directory)',
        'readlink("/etc/x", 0x7ffd, 4096) = -1 EINVAL (Invalid argument)',
        'mkdir("/etc/d", 0777) = 0',
        'mkdir("/etc/d", 0777 <unfinished ...>',
        "<... mkdir resumed>) = -1 EROFS (Read-only file system)",
        "+++ exited with 0 +++",
        "--- SIGCHLD {si_signo=SIGCHLD} ---",
        "getpeername(4<socket:[97]>, 0x7ff, [16]) = -1 ENOTCONN (Transport endpoint is not connected)",
        'mkdir("/etc/d", 07',
        'mkdir("/etc/d',
        "",
        "strace: Process 5 attached",
        'connect(4<socket:[9]>, {sa_family=AF_UNIX, sun_path="/run/x"}, 9) = -1 ECONNREFUSED (x)',
    ],
)
def test_everything_else_is_no_denial(reader: Strace, line: str) -> None:
    assert reader.feed(line) is None
    assert reader.feed(f"77 {line}") is None


def test_the_halves_of_a_call_find_each_other_by_their_thread(reader: Strace) -> None:
    denied = only(
        reader,
        '31610 mkdir("/etc/a", 0777 <unfinished ...>',
        f'31612 openat(AT_FDCWD<{WS}>, "/etc/b", O_WRONLY|O_CREAT, 0666 <unfinished ...>',
        "31612 <... openat resumed>)       = 5</x>",
        "31611 +++ exited with 0 +++",
        "31610 <... mkdir resumed>)        = -1 EROFS (Read-only file system)",
        "31610 <... mkdir resumed>)        = -1 EROFS (Read-only file system)",
    )
    assert (denied.path, denied.pid, denied.syscall) == ("/etc/a", 31610, "mkdir")


def test_halves_that_never_meet_are_bounded(reader: Strace) -> None:
    for pid in range(MAX_UNFINISHED + 10):
        reader.feed(f'{pid} mkdir("/etc/a", 0777 <unfinished ...>')
    assert len(reader._begun) == MAX_UNFINISHED


ADDRESSES = [
    (
        'connect(4<socket:[9]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}, '
        "16) = -1 ENETUNREACH (Network is unreachable)",
        "192.0.2.1:443",
    ),
    (
        'sendto(5<socket:[9]>, "x", 1, 0, {sa_family=AF_INET6, sin6_port=htons(53), sin6_flowinfo=htonl(0), '
        'inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = -1 ENETUNREACH (x)',
        "[2001:db8::1]:53",
    ),
    (
        'connect(4<socket:[9]>, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")}, 16)'
        " = -1 ECONNREFUSED (Connection refused)",
        "127.0.0.1:9",
    ),
]


@pytest.mark.parametrize(("line", "address"), ADDRESSES)
def test_without_a_network_connections_are_denied(reader: Strace, line: str, address: str) -> None:
    denied = only(reader, line)
    assert (denied.access, denied.path, denied.grant) == ("connect", address, "--network on")


@pytest.mark.parametrize(("line", "address"), ADDRESSES)
def test_with_a_network_it_is_not_the_sandbox_that_refuses(line: str, address: str) -> None:
    assert Strace(bound(Network.ON), THERE.__contains__).feed(line) is None


def test_what_the_policy_allows_is_not_blamed_on_it(reader: Strace) -> None:
    denied = only(reader, f'mkdir("{WS}/sub", 0777) = -1 EACCES (Permission denied)')
    assert (denied.path, denied.grant) == (f"{WS}/sub", "")
    assert "the policy allows it" in denied.rule


def test_arguments_are_split_where_they_end() -> None:
    assert split('AT_FDCWD</a,b>, "x, \\"y", {a=[1, 2], b="}"}, 0') == [
        "AT_FDCWD</a,b>",
        '"x, \\"y"',
        '{a=[1, 2], b="}"}',
        "0",
    ]
    assert split("") == [""]


def test_what_exists_is_written_and_not_created_whatever_the_flags_say(reader: Strace) -> None:
    denied = only(
        reader, 'openat(AT_FDCWD</x>, "/etc/passwd", O_WRONLY|O_CREAT|O_TRUNC, 0666) = -1 EROFS (x)'
    )
    assert (denied.access, denied.grant) == ("write", "--allow-write /etc/passwd")


def test_of_two_paths_the_one_is_told_that_the_policy_refuses(reader: Strace) -> None:
    denied = only(reader, f'rename("/etc/passwd", "{WS}/p") = -1 EACCES (Permission denied)')
    assert (denied.access, denied.path, denied.grant) == ("remove", "/etc/passwd", "--allow-write /etc")


def test_a_path_that_begins_nowhere_is_told_as_written(reader: Strace) -> None:
    for line, access in (
        ('7 mkdir("../d", 0777) = -1 EROFS (Read-only file system)', "create"),
        (f'7 rename("{WS}/a", "../d") = -1 EROFS (Read-only file system)', "create"),
    ):
        denied = only(reader, line)
        assert (denied.access, denied.path, denied.grant, denied.host) == (access, "../d", "", False)
        assert denied.rule
    denied = only(reader, '7 execve("./tool", ["tool"], 0x7ff /* 3 vars */) = -1 EACCES (Permission denied)')
    assert (denied.access, denied.path, denied.host) == ("read", "./tool", False)
    everything = bind(workspace_write(), Where(WS, (WS,)))
    denied = only(Strace(everything, THERE.__contains__), '7 chdir("x") = -1 EACCES (x)')
    assert (denied.path, denied.host) == ("x", True)  # no rule refuses reading


def test_a_directory_that_a_call_names_is_enough(reader: Strace) -> None:
    assert only(reader, '7 mkdirat(AT_FDCWD</etc>, "d", 0777) = -1 EROFS (x)').path == "/etc/d"
    assert only(reader, '7 mkdir("/etc/d", 0777) = -1 EROFS (x)').path == "/etc/d"


def test_asking_whether_one_could_write_is_no_denial(reader: Strace) -> None:
    assert reader.feed('7 access("/etc", W_OK) = -1 EROFS (Read-only file system)') is None
    denied = only(reader, '7 setxattr("/etc/passwd", "user.x", "1", 1, 0) = -1 EROFS (Read-only …)')
    assert (denied.access, denied.path, denied.host) == ("write", "/etc/passwd", False)


def test_reading_that_the_host_refuses_is_marked(reader: Strace) -> None:
    denied = only(reader, '7 openat(AT_FDCWD</x>, "/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)')
    assert (denied.access, denied.host) == ("read", True)
    assert not only(reader, '7 openat(AT_FDCWD</x>, "/home/me/secret", O_RDONLY) = -1 EACCES (x)').host


@every_row(
    ("syscall", "access", "errno", "asked", "told"),
    [
        ("mkdir", "create", "EROFS", "/etc/d", True),
        ("mkdir", "create", "EROFS", "d", False),  # only the watcher knows where it was
        ("mkdirat", "create", "EROFS", "d", True),
        ("openat", "write", "EACCES", "d", True),
        ("rename", "remove", "EROFS", "d", False),
        ("rename", "remove", "EBUSY", "/etc/d", False),  # held in place: not an errno of refusal here
        ("bind", "create", "EROFS", "s", False),
        ("connect", "connect", "ENETUNREACH", "192.0.2.1:80", True),
        ("seccomp", "listen", "EBUSY", "", False),
    ],
)
def test_what_the_watcher_alone_can_tell_is_left_to_it(
    syscall: str, access: str, errno: str, asked: str, told: bool
) -> None:
    assert tells(syscall, access, errno, asked) is told


def test_only_failed_calls_about_files_and_addresses_are_traced() -> None:
    line = command_line(12, "/tmp/out")
    assert line[0] == "strace"
    assert line[-4:] == ["-o", "/tmp/out", "-p", "12"]
    assert {"-f", "-Z", "-y", "trace=%file,%network"} <= set(line)


def test_a_host_that_a_cli_with_a_provider_asks_for_is_beside_the_point() -> None:
    name = replace(REFUSAL, access="connect", syscall="getaddrinfo", path="stats.test", rule="no", grant="g")
    for whose, refusal, aside in (
        (WHOSE, name, True),
        (dataclasses.replace(WHOSE, agent=CATALOG["shell"]), name, False),
        (WHOSE, replace(name, command="curl stats.test"), False),
        (WHOSE, replace(name, syscall="connect"), False),
    ):
        assert denied(refusal, whose).aside is aside
