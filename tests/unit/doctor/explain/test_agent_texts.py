"""What agents and their tools really print, and the one row that owns it.

Texts of Codex were printed by 0.166.0 on Linux; those of other versions and systems are as public reports
quote them. Paths and names of people are made up.
"""

import re

import pytest

from holdfast.doctor.explain.causes import CONFIG_ROWS, LAUNCH_ROWS, RUN_ROWS
from holdfast.doctor.explain.explanation import TABLE, explain
from holdfast.sandbox.reasons.fingerprints import find_needles
from tests.support.rows import every_row
from tests.unit.sandbox.reasons.test_fingerprints import ALL, ONLY_BY_ERRNO

HOME = "/home/me/.codex"
TOML = f"Error: failed to load bootstrap configuration\n\nCaused by:\n    0: {HOME}/config.toml:2:1: "
NAMESPACE_HINT = "likely because the kernel does not allow non-privileged user namespaces."
ENOSPC = "Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
LANDLOCK = "thread 'main' panicked at linux-sandbox/src/linux_run_main.rs:30:9:\nerror running landlock: "

# The known symptoms in the order in which they were collected: what they print, and whose that is.
SYMPTOMS: dict[int, tuple[str, list[str]]] = {
    1: ("lo.newaddr", ["bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"]),
    2: ("lo.newaddr", ["bwrap: loopback: Failed RTM_NEWLINK: Operation not permitted"]),
    3: ("uidmap.eacces", ["bwrap: setting up uid map: Permission denied"]),
    4: ("uidmap.eperm", ["bwrap: setting up uid map: Operation not permitted"]),
    5: ("uidmap.eperm", ["unshare: write failed /proc/self/uid_map: Operation not permitted"]),
    6: ("userns.eperm", [f"bwrap: No permissions to create a new namespace, {NAMESPACE_HINT}"]),
    7: ("userns.eperm", [f"bwrap: No permissions to create new namespace, {NAMESPACE_HINT}"]),
    8: (
        "userns.enospc",
        [
            f"bwrap: {ENOSPC}",
            '{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"true",'
            f'"aggregated_output":"bwrap: {ENOSPC}\\n","exit_code":1,"status":"failed"}}}}',
        ],
    ),
    9: (
        "userns.einval",
        [
            "bwrap: Creating new namespace failed, likely because the kernel does not support user"
            " namespaces. "
            " bwrap must be installed setuid on such systems."
        ],
    ),
    10: (
        "mount.eperm",
        [
            "bwrap: Failed to make / slave: Operation not permitted",
            "bwrap: Failed to make / slave: Permission denied",
            "apply patch verification failed: Failed to read file to update /srv/configuration.yaml: fs"
            " sandbox"
            " helper failed with status exit status: 1: bwrap: Failed to make / slave: Permission denied",
        ],
    ),
    11: ("mount.rootfs", ["bwrap: pivot_root: Invalid argument"]),
    12: ("mount.eperm", ["bwrap: pivot_root: Operation not permitted"]),
    13: ("proc.masked", ["bwrap: Can't mount proc on /newroot/proc: Operation not permitted"]),
    14: ("codex.proc", ["bwrap: Can't mount proc on /proc: Operation not permitted"]),
    15: ("lo.socket", ["bwrap: loopback: Failed to create NETLINK_ROUTE socket: Operation not permitted"]),
    16: (
        "lo.bind",
        [
            "bwrap: loopback: Failed to bind NETLINK_ROUTE socket: Operation not permitted",
            "bwrap: loopback: Failed to look up lo: Operation not permitted",
        ],
    ),
    17: ("codex.helper", ["bwrap: execvp codex-linux-sandbox: No such file or directory"]),
    18: (
        "codex.temporary-home",
        [
            "WARNING: proceeding, even though we could not create PATH aliases: Refusing to create helper"
            " binaries"
            ' under temporary dir "/tmp" (codex_home: AbsolutePathBuf("/tmp/home"))'
        ],
    ),
    19: ("bwrap.option", ["bwrap: Unknown option --argv0"]),
    20: (
        "bwrap.missing",
        [
            "thread 'main' (25359) panicked at linux-sandbox/src/launcher.rs:60:13:\n"
            "bubblewrap is unavailable: no system bwrap was found on PATH and no bundled"
            " codex-resources/bwrap"
            " binary was found next to the Codex executable\n"
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"
        ],
    ),
    21: (
        "codex.digest",
        [
            "bundled bubblewrap digest mismatch for /opt/codex/codex-resources/bwrap: expected"
            " sha256:77360cb751,"
            " got sha256:c79bf44242"
        ],
    ),
    22: (
        "codex.bundled",
        [
            "Codex could not find bubblewrap on PATH. Install bubblewrap with your OS package manager."
            " Codex will"
            " use the bundled bubblewrap in the meantime."
        ],
    ),
    23: (
        "codex.preflight",
        [
            '{"method":"configWarning","params":{"summary":"Codex\'s Linux sandbox uses bubblewrap and'
            ' needs access'
            ' to create user namespaces.","details":null}}'
        ],
    ),
    24: (
        "codex.sandbox-word",
        [
            "thread 'main' (2) panicked at linux-sandbox/src/linux_run_main.rs:1193:5:\n"
            "Failed to execvp linux: No such file or directory (os error 2)"
        ],
    ),
    25: (
        "codex.landlock",
        ["filesystem-restricted execution requires bubblewrap to isolate app-server sockets"],
    ),
    26: (
        "codex.landlock-profile",
        [
            "permission profiles requiring direct runtime enforcement are incompatible with"
            " --use-legacy-landlock"
        ],
    ),
    27: (
        "codex.landlock-deprecated",
        [
            '{"type":"item.completed","item":{"id":"item_0","type":"error","message":'
            '"`[features].use_legacy_landlock` is deprecated and will be removed soon. (Remove this'
            ' setting to stop'
            ' opting into the legacy Linux sandbox behavior.)"}}'
        ],
    ),
    28: (
        "codex.landlock-absent",
        [
            f"{LANDLOCK}Sandbox(LandlockRestrict)",
            "error applying legacy Linux sandbox restrictions:\nSandbox(LandlockRestrict)",
        ],
    ),
    29: (
        "codex.landlock-userns",
        [f'{LANDLOCK}Io(Os {{ code: 1, kind: PermissionDenied, message: "Operation not permitted" }})'],
    ),
    30: (
        "codex.proot",
        ["error building bubblewrap command: cannot establish app-server socket mount isolation"],
    ),
    31: ("codex.proot", ["bwrap: fchdir to oldroot: No such file or directory"]),
    32: (
        "codex.root-missing",
        [
            "bwrap: Can't bind mount /bindfilefkYrwq on /newroot/home/me/ws/rel: Unable to mount source on"
            " destination: No such file or directory"
        ],
    ),
    33: ("bwrap.mkdir", ["bwrap: Can't mkdir /srv/ws/.git: Permission denied"]),
    34: (
        "codex.wsl1",
        [
            "Codex's Linux sandbox uses bubblewrap, which is not supported on WSL1 because WSL1 cannot"
            " create the"
            " required user namespaces. Use WSL2 for sandboxed shell commands."
        ],
    ),
    35: (
        "config.duplicate",
        [
            f"{TOML}duplicate key\n    1: TOML parse error at line 2, column 1\n         |\n"
            '       2 | sandbox_mode="read-only"\n         | ^^^^^^^^^^^^\n       duplicate key\n       \n',
            "Error loading config.toml: duplicate key",
        ],
    ),
    36: (
        "config.mark",
        [
            f"{TOML}invalid unquoted key, expected letters, numbers, `-`, `_`\n"
            "    1: TOML parse error at line 2, column 1\n         |\n"
            '       2 | \ufeffmodel="x"\n         | ^^^\n'
            "       invalid unquoted key, expected letters, numbers, `-`, `_`\n"
        ],
    ),
    37: (
        "config.unknown",
        [
            f"Error loading config.toml:\n{HOME}/config.toml:2:1: unknown configuration field"
            f" `tui.sandbox_mode`\n"
            '  |\n2 | sandbox_mode="read-only"\n  | ^^^^^^^^^^^^',
            '{"error":{"code":-32600,"data":{"reason":"configLoad","line":1,"column":1},"message":"failed'
            ' to load'
            f' configuration: {HOME}/config.toml:1:1: unknown configuration field `sandbox_mod`"}}}}',
        ],
    ),
    38: (
        "config.ignored",
        [
            "warning: Codex is ignoring 1 unrecognized configuration setting. Check for typos or deprecated"
            f" settings.\n  user ({HOME}/config.toml): `history.sandbox_mode` is ignored.",
            '{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Codex is ignoring 1'
            " unrecognized configuration setting. Check for typos or deprecated settings.\\n  user"
            f' ({HOME}/config.toml): `history.sandbox_mode` is ignored."}}}}',
        ],
    ),
    39: (
        "config.variant",
        [
            "Error loading config.toml: unknown variant `nope`, expected one of `read-only`,"
            " `workspace-write`,"
            " `danger-full-access`\nin `sandbox_mode`\n"
        ],
    ),
    40: (
        "config.type",
        [
            "Error: failed to load bootstrap configuration\n\nCaused by:\n"
            '    invalid type: string "danger-full-access", expected a boolean\n    in `features`\n'
        ],
    ),
    41: (
        "config.permissions",
        ["    data did not match any variant of untagged enum FilesystemPermissionToml\n  in `permissions`"],
    ),
    42: (
        "permissions.unselected",
        ["Error: config defines `[permissions]` profiles but does not set `default_permissions`"],
    ),
    43: (
        "permissions.profile",
        [
            "Error: default_permissions refers to undefined profile `mine`",
            "Error: default_permissions requires a `[permissions]` table",
            "Error: permissions profile `mine` cannot extend unsupported built-in profile"
            " `:danger-full-access`",
        ],
    ),
    44: (
        "config.profile",
        [
            'Error: legacy `profile = "x"` config is no longer supported; use `--profile x` with'
            ' `x.config.toml`'
            " instead"
        ],
    ),
    45: (
        "config.approval",
        ['Error: approval_policy = "untrusted" is no longer supported; remove this setting'],
    ),
    46: (
        "requirements.full-access",
        [
            'Error: `approval_policy = "never"` cannot be used because requirements do not allow'
            ' `sandbox_mode = "danger-full-access"`; Codex would fall back to read-only permissions'
        ],
    ),
    47: (
        "requirements.fallback",
        [
            "Configured value for `permission_profile` is disallowed by requirements; falling back to"
            " required"
            " value Managed { network: Restricted }. Details: invalid value for `sandbox_mode`"
        ],
    ),
    48: (
        "requirements.broken",
        [
            "Error loading config.toml: failed to parse requirements layer /etc/codex/requirements.toml:"
            " TOML parse"
            " error at line 1, column 5\n  |\n1 | a = \n  |     ^\nstring values must be quoted, expected"
            " literal"
        ],
    ),
    49: (
        "codex.home",
        [
            'Error: failed to resolve CODEX_HOME\n\nCaused by:\n    CODEX_HOME points to "/none", but'
            ' that path does'
            " not exist",
            '    CODEX_HOME points to "/etc/passwd", but that path is not a directory',
        ],
    ),
    50: (
        "config.unreadable",
        [
            f"Failed to read config file {HOME}/config.toml: invalid utf-8 sequence of 1 bytes from index 3",
            f"Failed to read config file {HOME}/config.toml: path `{HOME}/config.toml` is not a file",
        ],
    ),
    51: (
        "config.defaults",
        [
            '{"method":"configWarning","params":{"summary":"Invalid configuration; using'
            ' defaults.","details":'
            f'"{HOME}/config.toml:1:5: string values must be quoted, expected literal string","path":"x"}}}}',
            "\x1b[2m2026-11-16T04:34:03Z\x1b[0m \x1b[31mERROR\x1b[0m"
            " \x1b[2mcodex_app_server\x1b[0m\x1b[2m:\x1b[0m"
            f" Invalid configuration; using defaults. {HOME}/config.toml:1:5: string values must be quoted",
        ],
    ),
    52: (
        "config.profiles",
        [
            f"Error loading config.toml: --profile `x` cannot be used while {HOME}/config.toml contains"
            f" legacy"
            f' `profile = "x"` or `[profiles.x]` config; move those settings into {HOME}/x.config.toml'
        ],
    ),
    53: (
        "trust.project",
        [
            "       To load project-local config, hooks, and exec policies, add /srv/ws as a trusted"
            " project in"
            f" {HOME}/config.toml.",
            '{"method":"configWarning","params":{"summary":"Project-local config, hooks, and exec'
            ' policies are'
            " disabled in the following folders until the project is trusted, but skills still load.\\n    1."
            " /srv/ws/.codex\\n       /srv/ws is marked as untrusted in the effective configuration. To load"
            ' project-local config, hooks, and exec policies, update its trust setting.\\n","details":null}}',
        ],
    ),
    54: (
        "trust.full-access",
        [
            '{"id":1,"result":{"thread":{"id":"01a1","cwd":"/srv/ws"},"approvalPolicy":"on-request",'
            '"sandbox":{"type":"dangerFullAccess"},"activePermissionProfile":null}}'
        ],
    ),
    55: (
        "git.protected",
        [
            "fatal: Unable to create '/srv/ws/.git/index.lock': Read-only file system",
            "fatal: Unable to create '/Users/me/ws/.git/index.lock': Operation not permitted",
        ],
    ),
    56: (
        "git.worktree",
        ["fatal: Unable to create '/srv/main/.git/worktrees/one/index.lock': Read-only file system"],
    ),
    57: (
        "git.protected",
        [
            "error: could not lock config file .git/config: Read-only file system",
            "error: cannot open '.git/FETCH_HEAD': Read-only file system",
            "fatal: cannot copy '/usr/share/git-core/templates/description' to '/srv/ws/.git/description':"
            " Read-only file system",
        ],
    ),
    58: (
        "cache.readonly",
        [
            "npm error rofs EROFS: read-only file system, mkdir '/root/.npm'",
            "npm ERR! code EROFS",
            "WARNING: The directory '/root/.cache/pip' or its parent directory is not owned or is not"
            " writable by"
            " the current user.",
            "pyenv: cannot rehash: /home/dev/.pyenv/shims isn't writable",
        ],
    ),
    59: (
        "codex.read-only",
        [
            "2026-11-16T04:39:57.549008Z ERROR codex_core::tools::router: error=patch rejected: writing"
            " is blocked"
            " by read-only sandbox; rejected by user approval settings",
            "patch rejected: writing outside of the project; rejected by user approval settings",
        ],
    ),
    60: (
        "codex.patch-helper",
        [
            "ERROR codex_core::tools::router: error=Exit code: 1\nWall time: 0 seconds\nOutput:\n"
            "Failed to write file /srv/ws/new.txt",
            "fs sandbox helper failed with status exit status: 182",
        ],
    ),
    61: (
        "codex.apparmor",
        [
            'audit: type=1400 audit(1776.1:9): apparmor="DENIED" operation="capable" class="cap"'
            ' profile="unprivileged_userns" pid=7 comm="codex-linux-san" capability=8  capname="setpcap"'
        ],
    ),
    62: (
        "net.dns",
        [
            "curl: (6) Could not resolve host: example.com",
            'Get "https://example.com": dial tcp: lookup example.com: no such host',
            "npm error code EAI_AGAIN",
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        ],
    ),
    63: (
        "net.socket",
        [
            '  File "/usr/lib/python3.11/socket.py", line 232, in __init__\n'
            "    _socket.socket.__init__(self, family, type, proto, fileno)\n"
            "PermissionError: [Errno 1] Operation not permitted"
        ],
    ),
    64: (
        "net.connect",
        ["curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server"],
    ),
    65: ("net.refused", ["dial tcp 192.0.2.1:443: connect: connection refused"]),
    66: (
        "net.timeout",
        [
            "dial tcp 192.0.2.1:443: i/o timeout",
            "Error: connect ETIMEDOUT 192.0.2.1:443",
            "ssh: connect to host example.com port 22: Connection timed out",
        ],
    ),
    67: (
        "tls.authority",
        [
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "curl: (60) SSL certificate problem: unable to get local issuer certificate",
            "npm error code SELF_SIGNED_CERT_IN_CHAIN\nnpm error self-signed certificate in certificate"
            " chain",
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "x509: OSStatus -26276",
            "npm error code UNABLE_TO_VERIFY_LEAF_SIGNATURE",
            "npm error unable to verify the first certificate",
            "invalid peer certificate: UnknownIssuer",
        ],
    ),
    68: (
        "proxy.allowlist",
        [
            'error=exec_command failed: ProcessFailed { message: "Network access to \\"example.com\\" was'
            ' blocked:'
            ' domain is not on the allowlist for the current sandbox mode." }',
            '{"status":"blocked","host":"example.com","reason":"not_allowed","message":"Domain not in'
            ' allowlist."}',
            '{"status":"blocked","host":"127.0.0.1","message":"Sandbox policy blocks local/private network'
            ' addresses."}',
        ],
    ),
    69: (
        "unix-socket",
        [
            "Error: connect EPERM /Users/me/Library/Application Support/app/o-7.sock",
            "dial unix /run/user/1000/app.sock: connect: operation not permitted",
        ],
    ),
    70: (
        "docker.socket",
        [
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon"
            " running?",
            "permission denied while trying to connect to the Docker daemon socket at"
            " unix:///var/run/docker.sock:"
            " dial unix /var/run/docker.sock: connect: operation not permitted",
        ],
    ),
    71: ("thread.read-only", []),
    72: ("seatbelt.launchctl", ["Bootstrap failed: 5: Input/output error"]),
    73: (
        "windows.logon",
        [
            "windows sandbox: CreateProcessWithLogonW failed: 1385",
            "execution error: Io(Custom { kind: Other, error: "
            '"windows sandbox: runner error: CreateProcessAsUserW failed: 1312" })',
        ],
    ),
    74: (
        "windows.acl",
        [
            "windows sandbox failed: helper_unknown_error: setup refresh had errors",
            "helper_unknown_error: apply deny-read ACLs",
            "deny ACE failed on D:\\ws\\.git: SetNamedSecurityInfoW failed for D:\\ws\\.git: 5",
            "SetNamedSecurityInfoW failed: 87",
            "helper_sandbox_lock_failed: lock sandbox bin dir C:\\x failed: SetSecurityInfo sandbox dir"
            " failed: 5",
            "windows sandbox failed: spawn setup refresh",
        ],
    ),
    75: (
        "windows.split",
        [
            "windows unelevated restricted-token sandbox cannot enforce split writable root sets directly;"
            " refusing to run unsandboxed",
            "windows elevated sandbox cannot reopen writable descendants under read-only carveouts directly",
        ],
    ),
    76: (
        "codex.rejected",
        ['exec_command failed: CreateProcess { message: "Rejected(`pwsh` rejected: blocked by policy)" }'],
    ),
    77: ("codex.capabilities", ["Linux sandbox retained effective or permitted capabilities"]),
    78: (
        "agent.no-commands",
        [
            '{"type":"turn.started"}\n'
            '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"I can\'t run any'
            ' commands here: every attempt is refused before it starts."}}\n'
            '{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":3}}'
        ],
    ),
    79: ("agent.idle", []),
    80: ("codex.still-confined", []),  # two lines, of two rows: a test of its own below
    81: (
        "provider.waiting",
        [
            "ERROR: Reconnecting... waiting for network",
            '{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending'
            ' request)"}',
        ],
    ),
    82: (
        "provider.retry",
        [
            "ERROR: Reconnecting... 1/2",
            '{"type":"error","message":"Reconnecting... 2/5 (stream disconnected before completion: failed to'
            ' lookup address information: Name does not resolve)"}',
        ],
    ),
    83: (
        "claude.scrub",
        [
            "bwrap: Creating new namespace failed, kernel doesn't support user namespaces: Operation not"
            " permitted"
        ],
    ),
}  # fmt: skip

# Not among the collected symptoms, and printed by the same programs.
BESIDES: list[tuple[str, str]] = [
    ("config.syntax", f"{TOML}string values must be quoted\n    1: TOML parse error at line 2, column 1"),
    ("trust.directory", "Not inside a trusted directory and --skip-git-repo-check was not specified."),
    ("codex.provider", "Error: Model provider `zz` not found"),
    ("codex.key", "ERROR: Missing environment variable: `OPENAI_API_KEY`."),
    ("codex.login", "Not logged in"),
    ("codex.login", "unexpected status 401 Unauthorized: Missing bearer authentication in header"),
    ("codex.login", "Your access token could not be refreshed because your refresh token was already used."),
    ("codex.option", "error: unexpected argument '--full-auto' found"),
    ("codex.option", "error: invalid value 'nope' for '--sandbox <SANDBOX_MODE>'"),
    ("codex.exec", "Failed to execvp nonesuch: No such file or directory (os error 2)"),
    ("codex.apparmor", 'apparmor="DENIED" operation="userns_create" exe="/opt/codex/codex-resources/bwrap"'),
    ("provider.unreachable", "ERROR: Connection failed: error sending request"),
    ("provider.unreachable", "stream disconnected before completion: connection closed"),
    ("provider.unreachable", "ERROR codex_api::x: failed to connect to Responses WebSocket stage=Unknown"),
    ("seatbelt.nested", "sandbox-exec: sandbox_apply: Operation not permitted"),
    ("docker.socket", "permission denied while trying to connect to the docker API at unix:///run/docker.sock"),
    ("docker.socket", "dial unix /var/run/docker.sock: connect: permission denied"),
    ("docker.socket", "Error: connect EACCES /run/user/1000/podman/podman.sock"),
    ("agent.no-commands", '{"type":"agent_message","text":"Unable to execute."}\n{"type":"turn.completed"}'),
]  # fmt: skip

TEXTS = [(id_, text) for id_, texts in SYMPTOMS.values() for text in texts] + BESIDES
ROWS = {row.id: row for row in (*CONFIG_ROWS, *LAUNCH_ROWS, *RUN_ROWS)}
TOGETHER = "codex.still-confined"

# What a tool prints wherever it runs, and means something more special when an agent runs it.
FINER = {
    "fs.erofs": {"git.protected", "cache.readonly"},
    "fs.eperm": {"git.protected"},
    "bwrap.exec": {"codex.helper"},
    "net.unix": {"unix-socket", "docker.socket"},
}


def test_every_symptom_has_its_row() -> None:
    assert list(SYMPTOMS) == list(range(1, 84))
    assert {id_ for id_, _ in SYMPTOMS.values()} <= {row.id for row in TABLE}


@every_row(("expected", "text"), TEXTS)
def test_a_text_is_explained_by_its_row_alone(expected: str, text: str) -> None:
    [found] = explain(text)
    assert found.id == expected
    assert all(found.evidence)
    assert [found.id for found in explain(f"start\r\n\x1b[31m{text}\x1b[0m\nend\n")] == [expected]


@every_row(("expected", "text"), ALL)
def test_the_rows_of_agents_take_no_text_of_the_sandbox(expected: str, text: str) -> None:
    [found] = explain(text)
    assert found.id == expected or found.id in FINER[expected]


@every_row("row", ROWS.values(), ids=lambda row: row.id)
def test_every_pattern_has_a_real_text(row: object) -> None:
    known = next(each for each in TABLE if each.id == getattr(row, "id", None))
    texts = [text.replace(',"', ',\n"') for id_, text in TEXTS if id_ == known.id]
    if known.id == TOGETHER:
        texts = ["sandbox: danger-full-access", '"sandbox_mode":"danger-full-access"']
    for pattern in known.patterns:
        fitting = [text for text in texts if re.search(pattern, text, re.IGNORECASE | re.MULTILINE)]
        assert fitting, pattern
        assert find_needles(pattern), f"this pattern would be tried on every line of every log: {pattern}"


def test_ids_are_unique_and_every_row_advises() -> None:
    assert len({row.id for row in TABLE}) == len(TABLE)
    assert all(row.cause and row.remedy and 0 < row.confidence <= 1 for row in ROWS.values())


def test_a_row_without_a_pattern_is_a_symptom_without_a_text() -> None:
    silent = {row.id for row in TABLE if not row.patterns} - ONLY_BY_ERRNO
    assert silent == {id_ for id_, texts in SYMPTOMS.values() if not texts} - {TOGETHER}


@pytest.mark.parametrize(
    "said", ["sandbox: danger-full-access", '{"sandbox_mode":"danger-full-access","x":1}']
)
def test_a_sandbox_that_fails_under_full_access_belongs_to_an_older_configuration(said: str) -> None:
    refused = "bwrap: No permissions to create a new namespace"
    assert [found.id for found in explain(f"{said}\n{refused}\n")] == ["userns.eperm", TOGETHER]
    assert explain(f"{said}\nall is well\n") == []


def test_an_agent_that_ran_commands_did_not_lack_the_means() -> None:
    said = '{"type":"agent_message","text":"I could not run the tests."}\n{"type":"turn.completed"}\n'
    assert [found.id for found in explain(said)] == ["agent.no-commands"]
    assert explain('{"type":"item.completed","item":{"type":"command_execution"}}\n' + said) == []


@every_row(
    "text",
    [
        "",
        "done\n",
        '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"done"}}',
        '{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":3}}',
        '"sandbox":{"type":"workspaceWrite","writableRoots":[],"networkAccess":false}',
        "sandbox: workspace-write\napproval: never\nprovider: openai\n",
        "bwrap (bubblewrap) 0.8.0",
        "the sandbox of codex uses bubblewrap and landlock",
        "wrote config.toml with sandbox_mode and default_permissions",
        "git commit -m 'protect .git/index.lock and .git/config'",
        "codex login succeeded",
        "HTTP/1.1 200 OK",
        "a key is ignored by the parser when it is a comment",
        "test_timeout: i/o is fast",
        "Compiling openssl v0.10 (certificate checks are on)",
        "Reconnected.",
    ],
)
def test_ordinary_words_of_agents_fit_no_row(text: str) -> None:
    assert explain(text) == []
