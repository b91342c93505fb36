"""Fingerprints of agents' messages: no sandbox, settings not in force, failing work. Pure module.

The same rules hold as for the rows of `sandbox/reasons/fingerprint_table.py`, which has the messages of
bwrap. A parser reports the reason twice, once with the place and once below a copy of the line: the row of a
reason must match both. A row without a pattern is a symptom that leaves no text; it serves as documentation.
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
_WHERE: Final = "codex app-server --print-startup-config --strict-config (names file, line and column)"
_HOIST: Final = (
    "move the key above the first [table] of the file: holdfast config codex apply does it for its own"
)

CONFIG_ROWS: Final = (
    FingerprintRow(
        "requirements.broken", Layer.POLICY, 0.95,
        "the administrator's requirements.toml does not parse, so Codex starts nowhere on this machine",
        "sudo $EDITOR /etc/codex/requirements.toml",
        (r"failed to parse requirements layer",),
    ),
    FingerprintRow(
        "config.defaults", Layer.CONFIG, 0.95,
        "config.toml is broken, and the app server runs on defaults instead: nothing in the file is in force",
        _WHERE,
        (r"Invalid configuration; using defaults",),
    ),
    FingerprintRow(
        "config.duplicate", Layer.CONFIG, 0.95,
        "one key stands twice: two programs wrote the file, or a dotted key and a [table] name the same"
        " thing",
        "delete one of the two; "
        + _WHERE,
        (
            r"(?:config\.toml:\d{1,9}:\d{1,9}|Error loading config\.toml): duplicate key",
            r"^[ \t]{0,40}duplicate key[ \t]{0,4}$",
        ),
    ),
    FingerprintRow(
        "config.mark", Layer.CONFIG, 0.7,
        "something stands before a key that cannot be seen: mostly a byte-order mark that was pushed down"
        " when"
        " a block was put on top of the file",
        "sed -i '2,$s/^\\xEF\\xBB\\xBF//' ~/.codex/config.toml",
        (r"invalid unquoted key, expected", r"^[ \t]{0,40}\d{1,9} \| \ufeff"),
    ),
    FingerprintRow(
        "config.unknown", Layer.CONFIG, 0.95,
        "a key that Codex does not know there: below the wrong [table], misspelt, or of another version",
        _HOIST,
        (r"unknown configuration field `",),
    ),
    FingerprintRow(
        "config.ignored", Layer.CONFIG, 0.95,
        "Codex ignores a key: below the wrong [table], misspelt, or of another version",
        _HOIST,
        (r"Codex is ignoring \d{1,9} unrecognized configuration setting", r"` is ignored\."),
    ),
    FingerprintRow(
        "config.variant", Layer.CONFIG, 0.95,
        "a value that is none of those the key takes",
        "write one of the values the message lists, in quotes",
        (r"unknown variant `[^`\n]{0,200}`, expected",),
    ),
    FingerprintRow(
        "config.type", Layer.CONFIG, 0.9,
        "a value of the wrong kind: a string for true or false, or a key of the root that stands below"
        " [features]",
        "move a key of the root above the first [table] of the file, or write true or false without quotes",
        (r"invalid type: [^\n]{1,300}, expected ",),
    ),
    FingerprintRow(
        "config.permissions", Layer.CONFIG, 0.9,
        "a [permissions.*.filesystem] table holds something that is no permission: a key of the root that"
        " stands below it, or a form this version does not take",
        "move the key above the first [table]; write permissions as dotted keys or an inline table",
        (r"data did not match any variant of untagged enum \w{0,40}Permission\w{0,40}",),
    ),
    FingerprintRow(
        "permissions.unselected", Layer.POLICY, 0.95,
        "the file has [permissions] and chooses none of them, so Codex does not start",
        "add at the top of config.toml: default_permissions = \":workspace\" (or sandbox_mode)",
        (r"config defines `?\[permissions\]`? profiles but does not set `?default_permissions",),
    ),
    FingerprintRow(
        "permissions.profile", Layer.POLICY, 0.95,
        "default_permissions names a profile that is not there, or one that extends what cannot be extended",
        "define [permissions.NAME] with extends = \":workspace\" or \":read-only\", or choose one of these"
        " two",
        (
            r"default_permissions refers to undefined profile",
            r"default_permissions requires a `?\[permissions\]`? table",
            r"cannot extend unsupported built-in profile",
        ),
    ),
    FingerprintRow(
        "config.profile", Layer.CONFIG, 0.95,
        "`profile = …` in config.toml is an error since Codex 0.134",
        "sed -i '/^profile *=/d' ~/.codex/config.toml, and put the settings into ~/.codex/NAME.config.toml",
        (r"legacy `?profile = [^\n]{1,200} config is no longer supported",),
    ),
    FingerprintRow(
        "config.profiles", Layer.CONFIG, 0.95,
        "--profile is given a name that config.toml still has as an old [profiles.NAME] table",
        "move the table into ~/.codex/NAME.config.toml and delete it from config.toml",
        (r"cannot be used while [^\n]{1,400} contains legacy `?profile",),
    ),
    FingerprintRow(
        "config.approval", Layer.CONFIG, 0.95,
        "approval_policy = \"untrusted\" is an error since Codex 0.149",
        "sed -i 's/^approval_policy *=.*/approval_policy = \"never\"/' ~/.codex/config.toml (or"
        " \"on-request\")",
        (r"approval_policy = \"untrusted\" is no longer supported",),
    ),
    FingerprintRow(
        "requirements.full-access", Layer.POLICY, 0.95,
        "the administrator does not allow full access, which was asked for together with approval never",
        "codex exec -s workspace-write …, or ask the administrator of /etc/codex/requirements.toml",
        (r"approval_policy = \"never\"`? cannot be used because requirements do not allow",),
    ),
    FingerprintRow(
        "requirements.fallback", Layer.POLICY, 0.95,
        "the administrator does not allow a value, and Codex went on with another one",
        "holdfast config codex plan (decides again within /etc/codex/requirements.toml)",
        (r"is disallowed by requirements; falling back",),
    ),
    FingerprintRow(
        "codex.home", Layer.CONFIG, 0.95,
        "CODEX_HOME is no directory that exists, and Codex does not create it",
        "mkdir -p \"$CODEX_HOME\"",
        (r"CODEX_HOME points to [^\n]{1,400}, but that path (?:does not exist|is not a directory)",),
    ),
    FingerprintRow(
        "config.unreadable", Layer.CONFIG, 0.95,
        "config.toml is not a file of UTF-8 text, or may not be read",
        "file ~/.codex/config.toml; iconv -f UTF-16 -t UTF-8 if it is UTF-16; otherwise write it anew",
        (r"Failed to read config file ",),
    ),
    FingerprintRow(
        "trust.project", Layer.TRUST, 0.95,
        "the repository has a .codex directory that is not in force, because nobody trusted the repository;"
        " without that it could loosen the sandbox",
        "nothing, or after reading its .codex: holdfast config codex apply --trusted REPO",
        (
            r"To load project-local config, hooks, and exec policies",
            r"Project-local config, hooks, and exec policies are disabled",
        ),
    ),
    FingerprintRow(
        "trust.full-access", Layer.TRUST, 0.5,
        "a thread has full access: somebody decided so, or the repository's own .codex won because the app"
        " server trusts a directory it may write to",
        "holdfast config codex check (says which file decides), then holdfast config codex apply",
        (r"\"sandbox\": ?\{\"type\": ?\"dangerFullAccess\"",),
    ),
    FingerprintRow(
        "trust.directory", Layer.TRUST, 0.95,
        "codex exec refuses a directory that is neither trusted nor a git repository",
        "codex exec --skip-git-repo-check …",
        (r"Not inside a trusted directory and --skip-git-repo-check was not specified",),
    ),
    FingerprintRow(
        "codex.option", Layer.CONFIG, 0.9,
        "this version of Codex has no such option or value: --full-auto is gone since 0.147, `-a untrusted`"
        " since 0.149",
        "codex exec -s workspace-write … (see codex exec --help)",
        (
            r"unexpected argument '(?:--full-auto|--ask-for-approval|-a|--strict-config)' found",
            r"invalid value '[^'\n]{0,100}' for '--(?:sandbox|ask-for-approval) <",
        ),
    ),
    FingerprintRow(
        "codex.provider", Layer.CONFIG, 0.95,
        "model_provider names a provider that no [model_providers.NAME] defines",
        "define [model_providers.NAME] in ~/.codex/config.toml, or remove model_provider",
        (r"Model provider `[^`\n]{0,100}` not found",),
    ),
    FingerprintRow(
        "codex.key", Layer.CONFIG, 0.95,
        "the key of the model's provider is not in the environment",
        "export the variable that the message names, where codex is started",
        (r"Missing environment variable: `",),
    ),
    FingerprintRow(
        "codex.login", Layer.CONFIG, 0.9,
        "nobody is logged in, or the login is not accepted any more",
        "codex login (codex login status says who)",
        (
            r"^Not logged in[ \t]{0,4}$",
            r"unexpected status 401 Unauthorized",
            r"refresh token (?:was|has been) (?:already used|revoked)|refresh token has expired",
        ),
    ),
    FingerprintRow(
        "config.syntax", Layer.CONFIG, 0.9,
        "config.toml is not TOML",
        _WHERE,
        (r"config\.toml:\d{1,9}:\d{1,9}: ", r"TOML parse error at line"),
        unless=(
            r"duplicate key",
            r"invalid unquoted key",
            r"unknown configuration field",
            r"failed to parse requirements layer",
            r"Invalid configuration; using defaults",
        ),
    ),
)  # fmt: skip
_REFUSED: Final = r"(?:Read-only file system|Operation not permitted|Permission denied)"

RUN_ROWS: Final = (
    FingerprintRow(
        "git.worktree", Layer.VCS, 0.95,
        "the repository of a linked worktree is protected in the sandbox, also when .git itself is writable",
        "holdfast config codex apply --writes git (grants .git and .git/worktrees/NAME, not the hooks)",
        (rf"(?P<path>/[^'\n]{{1,300}}/\.git/worktrees/[^'\n]{{1,200}})': {_REFUSED}",),
    ),
    FingerprintRow(
        "git.protected", Layer.VCS, 0.9,
        "the sandbox protects .git, so nothing can be added, committed or fetched",
        "holdfast config codex apply --writes git, or let the agent's supervisor commit",
        (
            rf"Unable to create '(?P<path>[^'\n]{{1,400}}\.git/[^'\n]{{1,100}}\.lock)': {_REFUSED}",
            rf"could not lock config file (?P<path>[^\n:]{{0,300}}\.git/config): {_REFUSED}",
            rf"cannot open '?(?P<path>[^'\n:]{{0,300}}\.git/FETCH_HEAD)'?: {_REFUSED}",
            rf"cannot copy '[^'\n]{{1,300}}' to '(?P<path>[^'\n]{{1,300}}\.git/[^'\n]{{1,100}})': {_REFUSED}",
        ),
    ),
    FingerprintRow(
        "cache.readonly", Layer.FILESYSTEM, 0.9,
        "a package manager wants to write its cache, which is outside the writable roots",
        "export XDG_CACHE_HOME=$PWD/.cache npm_config_cache=$PWD/.cache/npm PIP_CACHE_DIR=$PWD/.cache/pip",
        (
            r"npm (?:ERR!|error) (?:code )?(?:E?ROFS)\b",
            r"(?P<path>/\S{1,300}) isn't writable",
            r"directory '(?P<path>[^'\n]{1,300})' or its parent directory is not owned or is not writable",
        ),
    ),
    FingerprintRow(
        "codex.read-only", Layer.POLICY, 0.95,
        "the patch tool was refused: the thread is in read-only mode, and nobody can be asked",
        "codex exec -s workspace-write …, if something is to be written",
        (r"writing is blocked by read-only sandbox", r"writing outside of the project; rejected"),
    ),
    FingerprintRow(
        "proxy.allowlist", Layer.POLICY, 0.95,
        "the host is not on the list of hosts that the agent may reach",
        "holdfast config codex apply --network HOST, if it may",
        (
            r'Network access to \\{0,2}"(?P<host>[\w.:-]{1,253})\\{0,2}" was blocked',
            r"Domain not in allowlist",
            r"Sandbox policy blocks local/private network addresses",
        ),
    ),
    FingerprintRow(
        "docker.socket", Layer.POLICY, 0.8,
        "the socket of the Docker daemon is out of reach from the sandbox, as it should be, or no daemon"
        " runs",
        "run docker outside the agent; access to the socket is root on the host, so never grant it",
        (
            r"Cannot connect to the Docker daemon",
            r"trying to connect to the (?:Docker daemon socket|docker API) at",
            r"\b(?:connect E\w{3,12}|dial unix) (?:/[\w.-]{1,80}){1,8}/(?:docker|podman)[\w.-]{0,40}\.sock\b",
        ),
    ),
    FingerprintRow(
        "unix-socket", Layer.POLICY, 0.7,
        "a connection to a unix socket is refused by the sandbox; on macOS a permission profile that lists"
        " the"
        " socket is not obeyed",
        "holdfast exec --allow-socket PATH -- COMMAND, or codex sandbox --allow-unix-socket PATH -- COMMAND,"
        " shows whether it is that",
        (
            r"connect (?:EPERM|EACCES) (?P<path>/[^\n]{1,300}?\.sock)\b",
            r"dial unix (?P<path>/[^\s:]{1,300}): connect: (?:operation not permitted|permission denied)",
        ),
    ),
    FingerprintRow(
        "tls.authority", Layer.APP, 0.85,
        "the certificate of the other side is not signed by an authority that this program trusts:"
        " a company's proxy, a missing"
        " ca-certificates package, or macOS with Codex before 0.56",
        "export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt; sudo apt-get install ca-certificates",
        (
            r"x509: certificate signed by unknown authority",
            r"unable to get (?:local )?issuer certificate",
            r"self[- ]signed certificate(?: in certificate chain)?",
            r"\bCERTIFICATE_VERIFY_FAILED",
            r"x509: OSStatus -26276",
            r"\bUNABLE_TO_VERIFY_LEAF_SIGNATURE\b",
            r"unable to verify the first certificate",
            r"invalid peer certificate: UnknownIssuer",
        ),
    ),
    FingerprintRow(
        "net.timeout", Layer.APP, 0.7,
        "the packets are dropped: by a firewall or the network policy around the container, not the agent's"
        " sandbox, which refuses at once",
        "curl -m 5 -v https://HOST from outside the agent, on the same host",
        (r"\bi/o timeout\b", r"\bETIMEDOUT\b", r": Connection timed out\b"),
    ),
    FingerprintRow(
        "provider.waiting", Layer.PROVIDER, 0.95,
        "the model's provider cannot be reached, and Codex waits for ever: it does so since 0.148",
        "codex features disable unbounded_connection_retries, and check the way to the provider",
        (r"Reconnecting\.\.\. waiting for network",),
    ),
    FingerprintRow(
        "provider.retry", Layer.PROVIDER, 0.4,
        "a connection to the model's provider broke and is tried again: the turn goes on, nothing has"
        " failed yet",
        "nothing, unless it comes again and again",
        (r"Reconnecting\.\.\. \d{1,4}/\d{1,4}",),
    ),
    FingerprintRow(
        "provider.unreachable", Layer.PROVIDER, 0.8,
        "the model's provider cannot be reached",
        "curl -sS -o /dev/null -w '%{http_code}\\n' https://api.openai.com/v1/models (401 means: reachable)",
        (
            r"Connection failed: error sending request",
            r"stream disconnected before completion",
            r"failed to connect to Responses WebSocket",
        ),
    ),
    FingerprintRow(
        "agent.no-commands", Layer.OBSERVABILITY, 0.6,
        "the agent says it cannot run anything, and its stream has no command: the sandbox dies before the"
        " command starts, Codex leaves such calls out of the stream and ends with 0",
        "holdfast doctor assert (runs a command through the agent's own sandbox and shows what it says)",
        (
            r"\"text\": ?\"[^\n]{0,400}?(?:can(?:no|['\u2019])t|could ?n[o'\u2019]t|unable to|not able to)"
            r" (?:run|execute|start)\b",
        ),
        beside=(r"\"type\": ?\"turn\.completed\"",),
        unless=(r"\"type\": ?\"command_execution\"",),
    ),
    FingerprintRow(
        "agent.idle", Layer.OBSERVABILITY, 0.5,
        "agents take work and produce nothing, and look idle: every sandboxed command may die at its start",
        "holdfast doctor assert --wait in the start script, so that such a machine takes no work",
    ),
    FingerprintRow(
        "thread.read-only", Layer.OBSERVABILITY, 0.5,
        "one command has network and the same one after `true;` has not (macOS, app server): the thread was"
        " started read-only, whatever config.toml says",
        'pass sandbox: "workspace-write" in thread/start, and compare the answer',
    ),
)  # fmt: skip
