"""Fingerprints of an agent's configuration: refused, ignored, overruled, or not in force. Pure module.

The same rules hold as for the rows of `sandbox/fingerprint_table.py`. A parser says the reason twice, once
with the place and once below a copy of the line: every reason has to own both.
"""

from typing import Final

from holdfast.sandbox.reasons.fingerprint_table import FingerprintRow, Layer

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
