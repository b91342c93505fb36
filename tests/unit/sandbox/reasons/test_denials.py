"""Real outputs against a real policy: what is blamed on the sandbox, and what is not."""

import errno

import pytest

from holdfast.sandbox.policy.policy import Access, At, Network, Place, Policy, Rule, Special, Where, bind
from holdfast.sandbox.reasons.denials import Denial, DenialEvidence, classify, looks_denied
from tests.support.rows import every_row

RULES = (
    Rule(Special(Place.ROOT), Access.READ),
    Rule(At("/ws"), Access.WRITE),
    Rule(At("/ws/secret"), Access.DENY),
    Rule(At("/deny"), Access.DENY),
)
WORKSPACE = bind(Policy(RULES, Network.OFF), Where("/ws"))
HIDING = bind(Policy(RULES[1:], Network.OFF), Where("/ws"))


def seen(
    output: str,
    *,
    exit_code: int = 1,
    network_off: bool = True,
    backend: str | None = "namespaces",
    cwd: str = "/ws",
    fixed: tuple[str, ...] = (),
    existing: tuple[str, ...] | None = None,
    closed: tuple[str, ...] = (),
    unlisted: tuple[str, ...] = (),
) -> Denial | None:
    exists = None if existing is None else lambda path: path in existing
    return classify(
        DenialEvidence(
            exit_code,
            output,
            WORKSPACE.explain,
            network_off,
            cwd,
            backend=backend,
            fixed=fixed,
            exists=exists,
            closed=closed,
            unlisted=unlisted,
        )
    )


# output, path, access, grant
FILES: list[tuple[str, str, str, str | None]] = [
    ("touch: cannot touch '/ro/new': Read-only file system", "/ro/new", "write", "--allow-write /ro"),
    ("bash: line 1: ../ro/x: Read-only file system", "/ro/x", "write", "--allow-write /ro/x"),
    ("tee: /ro/t: Sistema de ficheros de sólo lectura", "/ro/t", "write", "--allow-write /ro/t"),
    ("tee: /ro/t: Das Dateisystem ist nur lesbar", "/ro/t", "write", "--allow-write /ro/t"),
    (
        "fatal: Unable to create '/ws/.git/index.lock': Read-only file system",
        "/ws/.git/index.lock",
        "write",
        "--allow-write /ws/.git",
    ),
    (
        "error: could not lock config file .git/config: Read-only file system",
        "/ws/.git/config",
        "write",
        "--allow-write /ws/.git",
    ),
    ("OSError: [Errno 30] Read-only file system: '/ro/n'", "/ro/n", "write", "--allow-write /ro/n"),
    ("Error: EROFS: read-only file system, mkdir '/ro/d'", "/ro/d", "write", "--allow-write /ro"),
    ("java.io.FileNotFoundException: /ro/x (Read-only file system)", "/ro/x", "write", "--allow-write /ro/x"),
    ("rm: cannot remove '.git': Device or resource busy", "/ws/.git", "write", "--allow-write /ws/.git"),
    ("rm: cannot remove 'secret': Device or resource busy", "/ws/secret", "write", None),
    (
        "OSError: [Errno 18] Invalid cross-device link: '/ro/f' -> 'g'",
        "/ro/f",
        "write",
        "--allow-write /ro",
    ),
    (
        "OSError: [Errno 18] Invalid cross-device link: 'g' -> '/ro/f'",
        "/ro/f",
        "write",
        "--allow-write /ro",
    ),
    ("mkdir: cannot create directory '.git': File exists", "/ws/.git", "write", "--allow-write /ws/.git"),
    ("bash: line 1: secret: Is a directory", "/ws/secret", "write", None),
    ("cat: secret/key: Not a directory", "/ws/secret/key", "read", "--allow-read /ws/secret/key"),
    ("rm: cannot remove '/ro/f': Read-only file system", "/ro/f", "write", "--allow-write /ro"),
    (
        "rm: no se puede borrar '/ro/f': Sistema de ficheros de sólo lectura",
        "/ro/f",
        "write",
        "--allow-write /ro",
    ),
    ("tee: /ro/create: Read-only file system", "/ro/create", "write", "--allow-write /ro/create"),
    ("cat: /deny/x: Permission denied", "/deny/x", "read", "--allow-read /deny/x"),
    ("ls: cannot open directory '/deny': Permission denied", "/deny", "read", None),
    ("PermissionError: [Errno 13] Permission denied: '/deny/n'", "/deny/n", "read", "--allow-read /deny/n"),
    ("touch: cannot touch '/deny/n': Permission denied", "/deny/n", "write", None),
    (
        'Error: unable to open database "/ro/new.db": unable to open database file',
        "/ro/new.db",
        "write",
        "--allow-write /ro",
    ),
    (
        "    db = sqlite3.connect('/srv/board/kanban.db')\n"
        "sqlite3.OperationalError: attempt to write a readonly database",
        "/srv/board/kanban.db",
        "write",
        "--allow-write /srv/board",
    ),
    (
        "mktemp: failed to create file via template '/tmp/tmp.XXXXXXXXXX': Read-only file system",
        "/tmp/tmp.XXXXXXXXXX",
        "write",
        "--allow-write /tmp",
    ),
    (
        "script: failed to create pseudo-terminal: Permission denied",
        "/dev/ptmx",
        "write",
        "--allow-write /dev/ptmx",
    ),
]


@every_row(("output", "path", "access", "grant"), FILES)
def test_a_refused_file_is_named_with_its_rule_and_grant(
    output: str, path: str, access: str, grant: str | None
) -> None:
    denial = seen(output)
    assert denial is not None
    assert (denial.kind, denial.path, denial.access, denial.grant) == ("filesystem", path, access, grant)
    assert denial.rule
    assert denial.confidence >= 0.5
    assert denial.evidence == output.splitlines()[-1]


# output, host, grant
HOSTS = [
    ("curl: (6) Could not resolve host: example.com", "example.com", "--allow-host example.com"),
    (
        "fatal: unable to access 'https://example.com/x/': Could not resolve host: example.com",
        "example.com",
        "--allow-host example.com",
    ),
    (
        "ssh: Could not resolve hostname h.example: Temporary failure in name resolution",
        "h.example",
        "--allow-host h.example:22",
    ),
    (
        "npm error code EAI_AGAIN\nnpm error x failed, reason: getaddrinfo EAI_AGAIN reg.example",
        "reg.example",
        "--allow-host reg.example",
    ),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", None, "--network on"),
    ("OSError: [Errno 101] Network is unreachable", None, "--network on"),
    (
        "curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server",
        "192.0.2.1",
        "--network on",
    ),
    ("Error: connect EPERM 192.0.2.1:80 - Local (undefined:undefined)", "192.0.2.1", "--network on"),
    ("ERROR: No matching distribution found for requests", None, "--network on"),
    ("java.net.UnknownHostException: example.com", "example.com", "--allow-host example.com"),
    (
        "W: Failed to fetch http://deb.example/x  Temporary failure resolving 'deb.example'",
        "deb.example",
        "--allow-host deb.example",
    ),
]


@every_row(("output", "host", "grant"), HOSTS)
def test_a_host_out_of_reach_is_a_denial_only_if_the_network_is_off(
    output: str, host: str | None, grant: str
) -> None:
    denial = seen(output)
    assert denial is not None
    assert (denial.kind, denial.host, denial.grant) == ("network", host, grant)
    assert denial.confidence >= 0.5
    assert seen(output, network_off=False) is None


def test_a_host_is_granted_by_its_name_only_where_that_can_be_enforced() -> None:
    denial = seen("curl: (6) Could not resolve host: example.com", backend="landlock")
    assert denial is not None
    assert (denial.host, denial.grant) == ("example.com", "--network on")


@every_row("network_off", [False, True])
@every_row(
    ("output", "path", "grant"),
    [
        ("dial unix /run/db.sock: connect: permission denied", "/run/db.sock", "--allow-socket /run/db.sock"),
        ("dial unix /var/run/docker.sock: connect: permission denied", "/var/run/docker.sock", None),
        ("error connecting to /tmp/tmux-0/default (Permission denied)", "/tmp/tmux-0/default", None),
        ("Error connecting to agent: Permission denied", None, '--allow-socket "$SSH_AUTH_SOCK"'),
        (
            "Error: connect EACCES /tmp/ssh-XX/agent.12",
            "/tmp/ssh-XX/agent.12",
            '--allow-socket "$SSH_AUTH_SOCK"',
        ),
    ],
)
def test_a_unix_socket_is_denied_by_its_path_and_never_cured_by_the_network(
    network_off: bool, output: str, path: str | None, grant: str | None
) -> None:
    denial = seen(output, network_off=network_off)
    assert denial is not None
    assert (denial.kind, denial.path, denial.host, denial.grant) == ("network", path, None, grant)


def test_a_service_missing_on_loopback_is_believed_only_a_little() -> None:
    denial = seen("Error: connect ECONNREFUSED 127.0.0.1:5432")
    assert denial is not None
    assert denial.confidence < 0.4


@every_row(
    "output",
    [
        "dial tcp 192.0.2.1:443: connect: connection refused",
        "Error: connect ECONNREFUSED 192.0.2.1:443",
        "ssh: connect to host example.com port 22: Connection refused",
    ],
)
def test_a_refusal_from_elsewhere_is_no_denial(output: str) -> None:
    assert seen(output) is None  # with the network off there is nobody who could refuse


SYSCALLS = [
    ("strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted", 1, "ptrace"),
    ("Cannot open netlink socket: Operation not permitted", 1, "nolink"),
    ("mount: /mnt: permission denied.", 32, "mount.call"),
    ("Bad system call (core dumped)", 159, "sigsys"),
    ("", 159, "sigsys"),
    ("bwrap: setting up uid map: Permission denied", 1, "uidmap.eacces"),
    ("unshare: unshare failed: Operation not permitted", 1, "userns.eperm"),
]


@every_row(("output", "code", "rule"), SYSCALLS)
def test_a_refused_system_call_has_no_grant(output: str, code: int, rule: str) -> None:
    denial = seen(output, exit_code=code)
    assert denial is not None
    assert (denial.kind, denial.rule, denial.path, denial.grant) == ("syscall", rule, None, None)


ORDINARY = [
    ("", 1),
    ("tests failed in sandbox/landlock/test_seccomp.py", 1),
    ("Error: the sandbox is full of sand", 1),
    ("touch: cannot touch '/ws/a/b': Permission denied", 1),
    ("touch: cannot touch '/ws/x': Read-only file system", 1),
    ("OSError: [Errno 30] Read-only file system: '/ws/usb/x'", 1),
    ("chown: changing ownership of '/ws/f': Operation not permitted", 1),
    ("bash: line 1: ./run.sh: Permission denied", 126),
    ("bash: line 1: /usr/share/doc/x: Permission denied", 126),
    ("cat: /etc/shadow: Permission denied", 1),
    ("grep: /etc/shadow: Permiso denegado", 1),
    ("open /etc/shadow: permission denied", 1),
    ("PermissionError: [Errno 13] Permission denied: '/etc/shadow'", 1),
    ("Error: EACCES: permission denied, scandir '/root'", 1),
    ("mkdir: cannot create directory '/usr': File exists", 1),
    ("mkdir: cannot create directory 'build': File exists", 1),
    ("bash: line 1: /etc: Is a directory", 1),
    ("cat: /etc/passwd/x: Not a directory", 1),
    ("cat: missing.txt: No such file or directory", 1),
    ("bash: line 1: nope: command not found", 127),
    ("rm: cannot remove 'mnt': Device or resource busy", 1),
    ("OSError: [Errno 18] Invalid cross-device link: 'a' -> '/ws/b'", 1),
    ("ln: failed to create hard link 'h' => '/etc/hostname': Operation not permitted", 1),
    ("git@host.example: Permission denied (publickey).", 128),
    ("remote: Permission denied.", 128),
    ("ERROR:  permission denied for table users", 1),
    ("kill: (1) - Operation not permitted", 1),
    ("connect('/ws/board.db')\nsqlite3.OperationalError: unable to open database file", 1),
    ("bwrap: execvp nope: No such file or directory", 1),
    ("sh: 1: bwrap: not found", 127),
    ("cp: cannot stat '/ws/permission denied/x': No such file or directory", 1),
    ("PermissionError: [Errno 13] Permission denied: '/deny\0'", 1),
]


@every_row(("output", "code"), ORDINARY)
def test_an_ordinary_failure_is_not_blamed_on_the_sandbox(output: str, code: int) -> None:
    assert seen(output, exit_code=code) is None


def test_a_command_that_succeeded_was_not_denied() -> None:
    assert seen("touch: cannot touch '/ro/new': Read-only file system", exit_code=0) is None


WEAK = [
    ('Error: Os { code: 30, kind: ReadOnlyFilesystem, message: "Read-only file system" }', 0.38),
    ("sqlite3.OperationalError: attempt to write a readonly database", 0.34),
    ("something went wrong: Permission denied", 0.36),
    # the command went elsewhere: the name is not below our working directory
    ("OSError: [Errno 30] Read-only file system: 'file'", 0.38),
]


@pytest.mark.parametrize(("output", "confidence"), WEAK)
def test_a_refusal_that_names_nothing_is_believed_only_a_little(output: str, confidence: float) -> None:
    assert seen(output) == Denial("filesystem", None, None, None, None, None, confidence, output)


@every_row(
    ("backend", "output", "confidence"),
    [
        ("landlock", "touch: cannot touch '/ro/n': Permission denied", 0.9),
        ("landlock", "open /ro/n: permission denied", 0.45),
        (None, "open /ro/n: permission denied", 0.45),
        ("namespaces", "touch: cannot touch '/ro/n': Permission denied", 0.45),
        ("seatbelt", "touch: /ro/n: Operation not permitted", 0.6),
    ],
)
def test_what_a_lack_of_permission_means_depends_on_the_backend(
    backend: str | None, output: str, confidence: float
) -> None:
    denial = seen(output, backend=backend)
    assert denial is not None
    assert (denial.path, denial.access, denial.confidence) == ("/ro/n", "write", confidence)


def test_a_program_without_its_execute_bit_is_no_refused_write() -> None:
    assert seen("bash: line 1: /opt/x: Permission denied", exit_code=126, backend="landlock") is None


def test_a_pinned_directory_is_held_in_place_though_it_is_writable() -> None:
    output = "mv: cannot move 'conf' to 'c2': Device or resource busy"
    denial = seen(output, fixed=("/ws/conf",))
    assert denial is not None
    assert (denial.path, denial.access, denial.grant) == ("/ws/conf", "write", None)
    assert seen(output) is None


@every_row(
    ("output", "grant"),
    [
        ("npm error rofs EROFS: read-only file system, mkdir '/home/me/.npm'", "--allow-write /home/me/.npm"),
        ("Error: ENOENT: no such file or directory, mkdir '/home/me/.npm'", "--allow-write /home/me/.npm"),
        ("Error: ENOENT: no such file or directory, mkdir '/home/me/a/b'", "--allow-write /home/me/a"),
        ("OSError: [Errno 30] Read-only file system: '/home/me/.cache/x/y'", "--allow-write /home/me/.cache"),
        ("touch: cannot touch '/home/me/.x/a.json': Read-only file system", "--allow-write /home/me/.x"),
    ],
)
def test_the_home_is_not_opened_for_a_directory_that_is_missing_in_it(output: str, grant: str) -> None:
    denial = seen(output, existing=("/home", "/home/me"))
    assert denial is not None
    assert denial.grant == grant


def test_a_directory_that_could_be_made_was_not_refused() -> None:
    assert seen("Error: ENOENT: no such file or directory, mkdir '/ws/a/b'", existing=("/ws",)) is None


@pytest.mark.parametrize(
    ("existing", "grant"),
    [
        (("/ro/a/x", "/ro/a", "/ro"), "--allow-write /ro/a/x"),
        (("/ro/a", "/ro"), "--allow-write /ro/a"),
        (("/ro",), "--allow-write /ro/a"),
        ((), "--allow-write /ro/a/x"),
    ],
)
def test_the_grant_is_for_something_that_exists_or_is_made(existing: tuple[str, ...], grant: str) -> None:
    denial = seen("bash: line 1: /ro/a/x: Read-only file system", existing=existing)
    assert denial is not None
    assert denial.grant == grant


@every_row(
    ("output", "told"),
    [
        ("touch: cannot touch 'new': Permission denied", True),
        ("bash: line 1: new: Permission denied", True),
        ("mv: cannot move 'old' to 'older': Permission denied", True),
        ("rm: cannot remove 'old': Permission denied", True),
        ("bash: line 1: old: Permission denied", False),  # it is there: that is between it and its owner
        ("cat: new: Permission denied", False),
        ("touch: cannot touch 'deeper/new': Permission denied", False),
    ],
)
def test_what_the_policy_allows_and_the_backend_cannot_is_told(output: str, told: bool) -> None:
    denial = seen(output, backend="landlock", existing=("/ws", "/ws/old"), closed=("/ws",))
    assert (denial is not None) == told
    if denial is not None:
        assert (denial.access, denial.grant) == ("write", None)
        assert denial.rule is not None
        assert "/ws" in denial.rule
    assert seen(output, backend="landlock", existing=("/ws", "/ws/old")) is None


def test_a_directory_that_cannot_be_listed_is_told() -> None:
    output = "ls: cannot open directory '.': Permission denied"
    denial = seen(output, backend="landlock", unlisted=("/ws",))
    assert denial is not None
    assert (denial.path, denial.access) == ("/ws", "read")
    assert seen(output, backend="landlock") is None


def test_what_the_policy_hides_is_missing_from_inside() -> None:
    evidence = DenialEvidence(
        1, "cat: /home/u/.vimrc: No such file or directory", HIDING.explain, True, "/ws"
    )
    denial = classify(evidence)
    assert denial is not None
    assert (denial.path, denial.access, denial.grant) == (
        "/home/u/.vimrc",
        "read",
        "--allow-read /home/u/.vimrc",
    )


def test_a_relative_path_is_taken_against_the_working_directory() -> None:
    denial = seen("touch: cannot touch '../x/../../ro/n': Read-only file system", cwd="/ws/sub")
    assert denial is not None
    assert denial.path == "/ro/n"


def test_without_a_policy_a_path_is_unconfirmed() -> None:
    outputs = ["cat: /x: Permission denied", "tee: /x: Read-only file system", "mkdir x: file exists"]
    outputs.append("open /x: permission denied")
    found = [classify(DenialEvidence(1, output, None, False, "/ws")) for output in outputs]
    assert found == [
        Denial("filesystem", "/x", None, "read", None, None, 0.63, outputs[0]),
        Denial("filesystem", "/x", None, "write", None, None, 0.66, outputs[1]),
        None,
        Denial("filesystem", "/x", None, None, None, None, 0.63, outputs[3]),
    ]


def test_the_most_credible_denial_wins_and_of_equals_the_last() -> None:
    lines = (
        "something: Permission denied",
        "tee: /ro/a: Read-only file system",
        "tee: /ro/b: Read-only file system",
        "cat: /etc/shadow: Permission denied",
    )
    denial = seen("\n".join(lines))
    assert denial is not None
    assert denial.path == "/ro/b"


def test_a_setup_failure_is_never_taken_for_the_commands_own() -> None:
    evidence = DenialEvidence(
        125,
        "touch: cannot touch '/ro': Read-only file system",
        WORKSPACE.explain,
        True,
        "/ws",
        ("userns", errno.EPERM),
    )
    denial = classify(evidence)
    assert denial is not None
    assert (denial.kind, denial.rule, denial.grant, denial.confidence) == ("setup", "userns.eperm", None, 1.0)


def test_an_unknown_stage_is_still_a_setup_failure() -> None:
    denial = classify(DenialEvidence(125, "", None, False, "/ws", ("warp", 5)))
    assert denial == Denial(
        "setup", None, None, None, None, None, 1.0, "warp failed with errno 5", witnessed=True
    )


@every_row(
    ("code", "output", "denied"),
    [
        (0, "permission denied", False),
        (1, "", False),
        (1, "all is well", False),
        (1, "Operation Not Permitted", True),
        (1, "PERMISSION DENIED", True),
        (1, "x: Read-only file system", True),
        (1, "seccomp", True),
        (1, "no such file: /home/u/sandbox/x", True),
        (1, "landlock", True),
        (1, "landloc\u212a", True),  # a Kelvin sign is a k in lower case
        (1, "Failed to write file", True),
        (2, "permission denied", True),
        (126, "permission denied", True),
        (127, "sandbox", True),
        (2, "usage", False),
        (126, "", False),
        (127, "not found", False),
        (159, "", True),
        (137, "", False),
        (-1, "", False),
    ],
)
def test_the_references_flag_is_a_keyword_or_a_killed_system_call(
    code: int, output: str, denied: bool
) -> None:
    assert looks_denied(code, output, sandboxed=True) is denied
    assert looks_denied(code, b"\xff" + output.encode(), sandboxed=True) is denied
    assert looks_denied(code, output, sandboxed=False) is False


@pytest.mark.parametrize(
    "output",
    [
        "OSError: [Errno 101] Network is unreachable",
        "Error: connect ENETUNREACH 192.0.2.1:80 - Local (0.0.0.0:0)",
        "dial tcp 192.0.2.1:80: connect: network is unreachable",
        "bind: Cannot assign requested address",
    ],
)
def test_no_way_to_an_address_is_the_sandbox_only_where_it_has_the_network_off(output: str) -> None:
    assert looks_denied(1, output, sandboxed=True, network_off=True)
    assert not looks_denied(1, output, sandboxed=True, network_off=False)
    assert not looks_denied(0, output, sandboxed=True, network_off=True)
    assert not looks_denied(1, output, sandboxed=False, network_off=True)


def test_the_flag_of_a_killed_system_call_is_for_linux_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert looks_denied(159, "", sandboxed=True) is False
