"""The state that start-up files leave in a shell: how to dump it, how to restore it. Pure module.

A login shell is run once with a script that prints its umask, options, aliases, functions and exports between
marks. The marks contain a random word, so the output of a start-up file cannot imitate one. Later commands
run in a shell without start-up files that first restores the same state from a descriptor.

Three facts shape the scripts. A start-up file may define a function or an alias named like any command. So
every command word is escaped against aliases and goes through `builtin` (in sh: `command`), in a subshell in
which no function has that name. (zsh has no way to do so: there the marks do not appear, and there is no
snapshot.) Parsing depends on state: functions are restored before aliases and options, which could change how
they are parsed. And zsh, unlike the others, parses all of a -c string before it runs any of it, so there the
user's script goes through `eval`, or its aliases would not apply.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.confine.childenv import narrow, scrub
from holdfast.errors import UsageError
from holdfast.wire.processes import EnvPolicy, ShellSnapshotRequest

STATE_FD: Final = 9  # dash accepts only one digit; the highest is the least likely to be in use
MAX_SCOPE_BYTES: Final = 256
MAX_SCRIPT_BYTES: Final = 128 * 1024 - 1  # what Linux accepts as one argument, without its NUL

# Every shell sets these itself, from its directory and process.
_BOOKKEEPING: Final = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})

# Options that describe how a shell was started, would stop it, or need a terminal.
_FIXED_OPTIONS: Final = frozenset(
    {"interactive", "monitor", "noexec", "onecmd", "privileged", "restricted"}
    | {"shinstdin", "singlecommand", "stdin", "zle"}
)
_FIXED_SHOPTS: Final = frozenset({"login_shell", "restricted_shell"})

_SET_LINE: Final = re.compile(r"^set ([-+])o ([a-z-]+)$", re.M)
_SHOPT_LINE: Final = re.compile(r"^shopt -([su]) (\w+)$", re.M)
_UMASK: Final = re.compile(r"[0-7]{1,4}")
# POSIX alias output: one word each, quoted, possibly over several lines.
_ALIAS_WORD: Final = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"[^"]*"|\\.)+""", re.S)
_EXPORTED_FUNCTION: Final = re.compile(r"BASH_FUNC_(.+)%%", re.S)


class _Shell(NamedTuple):
    """The commands of one kind of shell."""

    flag: str  # replaces -lc: no start-up files
    run: str  # reaches the real command despite a function or alias of that name
    source: str
    quiet: str  # keeps traps from printing between the marks, and from running for a dump
    aliases: str
    functions: str
    extra: str  # bash: its second set of options; zsh: the path of autoloaded functions
    rc: str  # reads the files of an interactive shell, as the reference does
    free: str  # removes a function with the name of `run`, in a subshell
    taken: str = "\\:"  # prints that function
    is_taken: str = ""  # tests whether there is one, if that must be known


_FREE_DECLARE: Final = "\\unset -f declare"
# In POSIX mode `unset` and `trap` take precedence over functions of that name; there is no other way.
_IN_POSIX_MODE: Final = (
    "if [[ :$SHELLOPTS: == *:posix:* ]]; then {0}; else POSIXLY_CORRECT=1; {0}; \\unset POSIXLY_CORRECT; fi"
)

SHELLS: Final = {
    "bash": _Shell(
        flag="-pc",
        run="builtin",
        source="set +p; if ! .",
        quiet="trap - DEBUG ERR RETURN EXIT",
        aliases="alias -p",
        functions="declare -f",
        extra="shopt -p",
        rc='if [[ -z ${BASH_ENV-} && -n ${HOME-} && -r $HOME/.bashrc ]]; then \\. "$HOME/.bashrc" || \\:; fi',
        free=_IN_POSIX_MODE.format("\\unset -f builtin"),
        taken=f"{_IN_POSIX_MODE.format(_FREE_DECLARE)}; \\declare -f builtin",
        is_taken=f"{_IN_POSIX_MODE.format(_FREE_DECLARE)}; \\declare -F builtin",
    ),
    "zsh": _Shell(
        flag="-fc",
        run="builtin",
        source="if ! .",
        quiet="trap - DEBUG ZERR EXIT",
        aliases="alias -L; \\builtin alias -sL",
        functions="typeset -f",
        extra='print -r -- "${(@qq)fpath[@]}"',
        rc='if [[ -r ${ZDOTDIR:-${HOME-}}/.zshrc ]]; then \\. "${ZDOTDIR:-$HOME}/.zshrc" || \\:; fi',
        free="",
    ),
    "sh": _Shell(
        flag="-c",
        run="command",
        source="if ! command .",  # a failing plain `.` would end the shell
        quiet="trap - EXIT",
        aliases="alias",
        functions="typeset -f 2>/dev/null",  # dash does not have it, and no other way to list functions
        extra="true",
        rc="""case ${ENV-} in "") ;; *) \\eval "\\set -- \\"$ENV\\""
if \\[ -r "$1" ]; then \\. "$1" || \\:; fi;; esac""",
        free="\\unset -f command",  # in sh such special built-ins precede functions, as `trap` does
    ),
}


class Dump(NamedTuple):
    """The state that a login shell printed."""

    umask: str
    options: str
    aliases: str
    functions: str
    extra: str
    taken: str  # the function with the name of the word by which all others are reached
    exports: dict[str, str]


class Snapshot(NamedTuple):
    """The effects of start-up files: on the environment, and on the shell as a script that repeats them."""

    exports: dict[str, str]
    unset: frozenset[str]
    state: bytes


def applies(request: ShellSnapshotRequest, argv: Sequence[str]) -> bool:
    """Whether this is a login shell with a script.

    Raises:
        UsageError: the scope is empty or too long, or the shell is unknown.
    """
    if not 1 <= len(request.scope_id.encode()) <= MAX_SCOPE_BYTES:
        raise UsageError(f"shell snapshot scope must be non-empty and at most {MAX_SCOPE_BYTES} bytes")
    if len(argv) < 3 or argv[0] != request.shell.path or argv[1] != "-lc":
        return False
    if request.shell.name not in SHELLS:
        raise UsageError(f"shell snapshots are unsupported for shell `{request.shell.name}`")
    return True


def can_share(overlay: Mapping[str, str]) -> bool:
    """Whether a snapshot can be shared: functions that come with the request belong to it alone."""
    return not any(_EXPORTED_FUNCTION.fullmatch(name) for name in overlay)


def withholds(policy: EnvPolicy | None) -> bool:
    """Whether the policy excludes anything that start-up files could export."""
    return policy is not None and bool(
        not policy.ignore_default_excludes or policy.exclude or policy.include_only
    )


def without_startup(
    name: str, argv: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The same script in a shell that reads no start-up files, so that they cannot export anything."""
    if name == "bash" and not can_share(env):  # a privileged bash would not import the functions of `env`
        return [argv[0], "-c", *argv[2:]], {key: value for key, value in env.items() if key != "BASH_ENV"}
    return [argv[0], SHELLS[name].flag, *argv[2:]], dict(env)


def capture_argv(name: str, argv: Sequence[str], nonce: str) -> list[str]:
    """The same login shell, printing its state instead of running the script."""
    shell = SHELLS[name]
    escaped = f"\\{shell.run}"
    plain = _dump(shell, escaped, nonce, free="", quiet=f"{escaped} {shell.quiet}")
    lines = [shell.rc, plain]
    if shell.is_taken:  # POSIX mode changes options, so it is entered only if there is no other way
        freed = _dump(
            shell, escaped, nonce, free=f"{shell.free}; ", quiet=_IN_POSIX_MODE.format("\\" + shell.quiet)
        )
        lines = [shell.rc, f"if ({shell.is_taken}) >/dev/null; then", freed, "else", plain, "fi"]
    elif shell.free:
        lines = [shell.rc, _dump(shell, escaped, nonce, free=f"{shell.free}; ", quiet="\\" + shell.quiet)]
    return [argv[0], argv[1], "\n".join(lines), *argv[3:]]


def _dump(shell: _Shell, escaped: str, nonce: str, *, free: str, quiet: str) -> str:
    def alone(command: str) -> str:
        return f"({free}{command})" if free else command

    mark = alone(f"{escaped} printf '\\0%s\\0' {nonce}")
    lines = [quiet, mark]
    for command in ("umask", "set +o", shell.aliases, shell.functions, shell.extra):
        # The alternative keeps `set -e` of a start-up file from ending the dump.
        lines += [alone(f"{escaped} {command} || {escaped} true"), mark]
    lines += [f"({shell.taken})" if free else "\\:", mark, "/usr/bin/env -0", mark]
    return "\n".join(lines)


def parse(output: bytes, nonce: str) -> Dump | None:
    """Parse the dump in `output`; None if it is not complete or cannot be trusted."""
    # Surrogate escapes keep bytes that are not UTF-8, as in os.environ.
    sections = output.decode("utf-8", "surrogateescape").split(f"\0{nonce}\0")
    if len(sections) != 9:
        return None
    _before, umask, options, aliases, functions, extra, taken, exports, _after = sections
    umask = umask.strip()
    if not _UMASK.fullmatch(umask):
        return None
    # zsh prints functions written with rc_quotes in a form that it cannot read back.
    if ("-", "rcquotes") in _SET_LINE.findall(options):
        return None
    pairs = (entry.partition("=") for entry in exports.split("\0") if entry)
    return Dump(umask, options, aliases, functions, extra, taken, {name: value for name, _, value in pairs})


def snapshot(name: str, dump: Dump, before: Mapping[str, str], policy: EnvPolicy | None) -> Snapshot:
    """Compute what start-up files changed, from the environment they ran in and the policy for their exports.

    Only changes are kept: the next command may have another environment, and must not see this one's.
    """
    exports = {
        key: value
        for key, value in dump.exports.items()
        if key not in _BOOKKEEPING and before.get(key) != value
    }
    exports = scrub(exports if policy is None else narrow(exports, policy))
    unset = frozenset(before) - frozenset(dump.exports) - _BOOKKEEPING
    # A bash without start-up files does not import functions, so their export is part of the state.
    exported = {
        found[1]: key in exports or key in before
        for key in dump.exports
        if (found := _EXPORTED_FUNCTION.fullmatch(key))
    }
    exports = {key: value for key, value in exports.items() if not _EXPORTED_FUNCTION.fullmatch(key)}
    return Snapshot(exports, unset, _restore_script(name, dump, exported))


def replay_env(env: Mapping[str, str], overlay: Mapping[str, str], taken: Snapshot) -> dict[str, str]:
    """`env` as start-up files would have left it, except for the request's own variables (`overlay`)."""
    changed = {name: value for name, value in env.items() if name not in taken.unset or name in overlay}
    changed.update((name, value) for name, value in taken.exports.items() if name not in overlay)
    return changed


def replay_argv(name: str, argv: Sequence[str]) -> list[str] | None:
    """The same script and parameters in a shell that first restores state; None if it would be too long."""
    shell = SHELLS[name]
    prologue = (
        f"{shell.source} /dev/fd/{STATE_FD} >/dev/null 2>&1; then exec {STATE_FD}<&-; "
        f"{shell.run} printf '%s\\n' 'failed to restore shell snapshot' >&2; fi\n"
    )
    script = f"builtin eval {quote(argv[2])}" if name == "zsh" else argv[2]
    whole = prologue + script
    if len(whole.encode("utf-8", "surrogateescape")) > MAX_SCRIPT_BYTES:
        return None
    return [argv[0], shell.flag, whole, *argv[3:]]


def quote(text: str) -> str:
    """Quote `text` as one word for any of the shells."""
    return "'" + text.replace("'", "'\\''") + "'"


def _restore_script(name: str, dump: Dump, exported: Mapping[str, bool]) -> bytes:
    run = f"\\{SHELLS[name].run}"
    head = [f"exec {STATE_FD}<&-", f"{run} umask {dump.umask}"]
    options = _SET_LINE.findall(dump.options)
    tail: list[str] = []
    match name:
        case "bash":
            head.append(f"{run} shopt -s extglob")  # function bodies may use it, whatever its final value
            for function, allowed in exported.items():
                tail.append(f"{run} declare -f {'-x' if allowed else '+x'} -- {quote(function)}")
            tail += [*_set_aliases(f"{run} alias --", dump.aliases), _set_options(run, options)]
            for sign in "su":
                names = [opt for s, opt in _SHOPT_LINE.findall(dump.extra) if s == sign]
                tail.append(" ".join([f"{run} shopt -{sign}", *(n for n in names if n not in _FIXED_SHOPTS)]))
        case "zsh":
            head.append(f"fpath=({dump.extra.strip()})")
            # zsh lists differences from its defaults, and -f is one of them. Braces make it parse all of this
            # before the first alias exists.
            differing = [("+", "norcs"), *(opt for opt in options if opt[0] == "-")]
            aliases = [f"{run} {line}" for line in dump.aliases.splitlines() if line.startswith("alias ")]
            tail += ["{", f"{run} unalias -a", *aliases, _set_options(run, differing), "}"]
        case _:
            tail += [*_set_aliases(f"{run} alias", dump.aliases), _set_options(run, options)]
    # Last, because after it that word means something else.
    script = "\n".join([*head, dump.functions, *tail, *filter(None, [dump.taken]), ""])
    return script.encode("utf-8", "surrogateescape")


def _set_aliases(command: str, listing: str) -> list[str]:
    return [f"{command} {word}" for word in _ALIAS_WORD.findall(listing) if "=" in word]


def _set_options(run: str, options: Sequence[tuple[str, str]]) -> str:
    words = [f"{sign}o {option}" for sign, option in options if option not in _FIXED_OPTIONS]
    return " ".join([f"{run} set", *words])
