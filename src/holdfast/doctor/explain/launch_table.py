"""Fingerprints of an agent's own sandbox that does not start: helper, kernel, macOS, Windows. Pure module.

The same rules hold as for the rows of `sandbox/fingerprint_table.py`, which has what bwrap itself says.
"""

from typing import Final

from holdfast.sandbox.reasons.fingerprint_table import FingerprintRow, Layer

_OTHER_HOME: Final = "export CODEX_HOME=$HOME/.codex (any directory that is not below $TMPDIR or /tmp)"
_NO_SWITCH: Final = "codex features disable use_legacy_landlock"
_OUTER: Final = "run the agent in a virtual machine and declare it: holdfast config codex apply --boundary vm"

LAUNCH_ROWS: Final = (
    FingerprintRow(
        "codex.apparmor", Layer.APPARMOR, 0.9,
        "AppArmor stopped Codex's own bwrap, while the system's may pass: shell commands can work and the"
        " patch tool fail, or the other way round",
        "add an AppArmor profile with `userns,` for the path of codex-resources/bwrap too, and update Codex",
        (r'apparmor="(?:DENIED|AUDIT)"[^\n]{0,400}(?:codex-linux-san|codex-resources/bwrap)',),
    ),
    FingerprintRow(
        "codex.proc", Layer.TOOL, 0.85,
        "/proc cannot be mounted, and Codex does not recognise how bubblewrap 0.12 says so: it tries no"
        " other way",
        "take the system's bubblewrap away (sudo apt-get remove bubblewrap), so that Codex uses its own",
        (r"bwrap: Can't mount proc on /proc: ",),
    ),
    FingerprintRow(
        "claude.scrub", Layer.CONFIG, 0.6,
        "the kernel refuses namespaces, and Claude Code wants them although its sandbox is off: a variable"
        " that"
        " scrubs the environment switches it on",
        "unset CLAUDE_CODE_SUBPROCESS_ENV_SCRUB",
        (r"Creating new namespace failed, kernel doesn't support user namespaces",),
    ),
    FingerprintRow(
        "codex.helper", Layer.TOOL, 0.95,
        "Codex could not put its helper into CODEX_HOME, which is below the directory for temporary files,"
        " and"
        " this bwrap is too old to do without: every sandboxed command fails",
        _OTHER_HOME,
        (r"bwrap: execvp codex-linux-sandbox: ",),
    ),
    FingerprintRow(
        "codex.temporary-home", Layer.TOOL, 0.95,
        "CODEX_HOME is below the directory for temporary files, where Codex does not put its helpers",
        _OTHER_HOME,
        (r"Refusing to create helper binaries under temporary dir",),
    ),
    FingerprintRow(
        "codex.digest", Layer.TOOL, 0.95,
        "the bwrap beside Codex is not the one it was built with: changed, or of another version",
        "npm install -g @openai/codex",
        (r"bundled bubblewrap digest mismatch",),
    ),
    FingerprintRow(
        "codex.bundled", Layer.TOOL, 0.3,
        "a note: there is no bwrap on PATH, so Codex uses its own",
        "nothing, or sudo apt-get install bubblewrap",
        (r"Codex could not find bubblewrap on PATH",),
    ),
    FingerprintRow(
        "codex.preflight", Layer.CONTAINER, 0.9,
        "Codex tried bwrap at its start, and user namespaces do not work here",
        "holdfast doctor (says which step is refused, by whom, and what to type)",
        (r"Codex's Linux sandbox uses bubblewrap and needs access to create user namespaces",),
    ),
    FingerprintRow(
        "codex.wsl1", Layer.HOST_KERNEL, 0.95,
        "WSL 1 has no namespaces",
        "wsl --set-version NAME 2",
        (r"not supported on WSL1",),
    ),
    FingerprintRow(
        "codex.sandbox-word", Layer.TOOL, 0.9,
        "`codex sandbox` takes no name of an operating system since 0.134, and runs it as a program",
        "codex sandbox -- COMMAND",
        (r"Failed to execvp (?:linux|macos|windows|landlock|seatbelt): No such file or directory",),
    ),
    FingerprintRow(
        "codex.exec", Layer.TOOL, 0.9,
        "the program is not there in Codex's sandbox",
        "check the name and PATH of the command",
        (r"Failed to execvp (?P<path>[^\n:]{1,400}): ",),
    ),
    FingerprintRow(
        "codex.landlock", Layer.CONFIG, 0.95,
        "the switch for Landlock is on, and this version of Codex cannot confine without bubblewrap",
        _NO_SWITCH,
        (r"filesystem-restricted execution requires bubblewrap to isolate app-server sockets",),
    ),
    FingerprintRow(
        "codex.landlock-profile", Layer.CONFIG, 0.95,
        "the switch for Landlock is on, together with a permission profile that Landlock cannot express",
        _NO_SWITCH,
        (r"requiring direct runtime enforcement are incompatible with --use-legacy-landlock",),
    ),
    FingerprintRow(
        "codex.landlock-deprecated", Layer.CONFIG, 0.9,
        "the switch for Landlock is on; it is deprecated since 0.122, and newer versions cannot start with"
        " it",
        _NO_SWITCH,
        (r"use_legacy_landlock`? is deprecated",),
    ),
    FingerprintRow(
        "codex.landlock-userns", Layer.CONTAINER, 0.9,
        "Codex 0.81 to 0.84 needs user namespaces beside Landlock, and they are refused",
        "npm install -g @openai/codex",
        (r"error running landlock: Io\(Os \{ code: 1\b",),
    ),
    FingerprintRow(
        "codex.landlock-absent", Layer.HOST_KERNEL, 0.9,
        "the kernel has no Landlock (before 5.13, switched off, or a container's kernel without it)",
        "npm install -g @openai/codex (uses bubblewrap since 0.115); where that fails as well: " + _OUTER,
        (
            r"Sandbox\(LandlockRestrict\b",
            r"error applying legacy Linux sandbox restrictions(?!: Sandbox\(Seccomp)",
        ),
    ),
    FingerprintRow(
        "codex.proot", Layer.HOST_KERNEL, 0.85,
        "proot, Termux or the like: namespaces are imitated there, and no sandbox can be built on that",
        _OUTER,
        (r"cannot establish app-server socket mount isolation", r"bwrap: fchdir to oldroot"),
    ),
    FingerprintRow(
        "codex.root-missing", Layer.CONFIG, 0.85,
        "a writable root is relative or does not exist: every command fails, not only those that use it",
        "write absolute paths of directories that exist: holdfast config codex apply --writable PATH",
        (r"bwrap: Can't bind mount [^\n]{1,600}: No such file or directory",),
    ),
    FingerprintRow(
        "codex.capabilities", Layer.CONTAINER, 0.9,
        "Codex was started with capabilities that its helper could not drop, and refuses to go on",
        "setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all codex …",
        (r"Linux sandbox retained effective or permitted capabilities",),
    ),
    FingerprintRow(
        "codex.still-confined", Layer.TOOL, 0.7,
        "full access is set, and a sandbox is tried all the same: a thread or helper still lives under the"
        " old"
        " configuration",
        "stop the codex process and start it again; the file alone changes nothing that runs",
        (r"^sandbox: danger-full-access", r"\"sandbox_mode\": ?\"danger-full-access\""),
        beside=(r"^(?:[^\n]{0,80}\W)?bwrap: ",),
    ),
    FingerprintRow(
        "codex.patch-helper", Layer.TOOL, 0.6,
        "the patch tool runs in the sandbox too, and its helper did not start: the reason is that of the"
        " shell"
        " commands around it",
        "holdfast doctor assert (shows the reason the patch tool leaves out)",
        (
            r"fs sandbox helper failed with status exit (?:status|code): \d{1,5}(?!: bwrap|\d)",
            r"^Failed to write file (?P<path>[^\n]{1,400})",
        ),
    ),
    FingerprintRow(
        "seatbelt.nested", Layer.SANDBOX_SETUP, 0.9,
        "a Seatbelt sandbox is around this process already, and macOS does not nest them",
        "start the agent outside the other sandbox, or declare that one: holdfast config codex apply"
        " --boundary vm",
        (r"sandbox-exec: sandbox_apply: Operation not permitted",),
    ),
    FingerprintRow(
        "seatbelt.launchctl", Layer.POLICY, 0.8,
        "launchd takes no orders from inside any Seatbelt sandbox",
        "run launchctl yourself, outside the agent",
        (r"\bBootstrap failed: 5\b",),
    ),
    FingerprintRow(
        "windows.split", Layer.WINDOWS, 0.95,
        "the sandbox without elevation cannot express this policy: several writable roots, or denied reads",
        "codex -c windows.sandbox=\"elevated\" …, or one writable root only",
        (r"windows (?:un)?elevated (?:restricted-token )?sandbox cannot (?:enforce|reopen) ",),
    ),
    FingerprintRow(
        "windows.logon", Layer.WINDOWS, 0.9,
        "Windows does not start a process for the sandbox's user: the account, its right to log on, or the"
        " helper is not as the elevated sandbox needs it",
        "codex -c windows.sandbox=\"unelevated\" …, or run in a virtual machine and declare it",
        (r"CreateProcess(?:WithLogon|AsUser)W failed: \d{1,6}",),
    ),
    FingerprintRow(
        "windows.acl", Layer.WINDOWS, 0.9,
        "the sandbox could not change the permissions of a directory: it belongs to somebody else, or to the"
        " sandbox's own user of an earlier run",
        "icacls PATH /setowner %USERNAME% /T for the path in .codex\\.sandbox\\sandbox.log, or leave it out"
        " of the workspace",
        (
            r"helper_(?:unknown_error|sandbox_lock_failed)",
            r"Set(?:Named)?SecurityInfoW? [^\n]{0,300}failed|SetNamedSecurityInfoW failed",
            r"windows sandbox failed: spawn setup refresh",
        ),
    ),
    FingerprintRow(
        "codex.rejected", Layer.POLICY, 0.7,
        "Codex refused the command before it ran: nobody can be asked (approval never), and the mode does not"
        " allow it; on Windows workspace-write counts as read-only until a sandbox is chosen",
        "codex -c windows.sandbox=\"unelevated\" … on Windows; elsewhere holdfast config codex check",
        (r"rejected: blocked by policy",),
    ),
)  # fmt: skip
