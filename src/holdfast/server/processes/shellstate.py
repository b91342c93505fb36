"""What start-up files leave behind in a shell: how to ask for it, how to put it back. Pure module.

A login shell is run once with a script that prints its umask, options, aliases, functions and exports
between marks. The marks hold a random word, so nothing a start-up file prints can pass for one. Later
commands run in a shell without start-up files that first reads the same state back from a descriptor.

Three facts shape the scripts. A start-up file may define a function or an alias named like any
command: every command word is escaped against aliases and goes through `builtin` (in sh: `command`), in a
subshell in which no function has that name (zsh has no way to do so: there the marks do not appear, and
there is no snapshot). Parsing depends on state:
functions are read back before aliases and options, which could change how they are read. And zsh,
unlike the others, parses all of a -c string before it runs any of it, so there the user's script goes
through `eval`, or it would miss its aliases.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.confine.childenv import narrow, scrub
from holdfast.errors import UsageError
from holdfast.wire.processes import EnvPolicy, ShellSnapshotRequest

STATE_FD: Final = 9  # dash can name one digit only; the highest is the least likely to be in use
MAX_SCOPE_BYTES: Final = 256
MAX_SCRIPT_BYTES: Final = 128 * 1024 - 1  # what Linux accepts as one argument, less its NUL

# Every shell sets these for itself, from the directory and the process it is started in.
_BOOKKEEPING: Final = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})

# Options that say how a shell was started, would stop it, or need a terminal.
_FIXED_OPTIONS: Final = frozenset(
    {"interactive", "monitor", "noexec", "onecmd", "privileged", "restricted"}
    | {"shinstdin", "singlecommand", "stdin", "zle"}
)
_FIXED_SHOPTS: Final = frozenset({"login_shell", "restricted_shell"})

_SET_LINE: Final = re.compile(r"^set ([-+])o ([a-z-]+)$", re.M)
_SHOPT_LINE: Final = re.compile(r"^shopt -([su]) (\w+)$", re.M)
_UMASK: Final = re.compile(r"[0-7]{1,4}")
# POSIX alias output: one word for each, quoted, possibly over several lines.
_ALIAS_WORD: Final = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"[^"]*"|\\.)+""", re.S)
_EXPORTED_FUNCTION: Final = re.compile(r"BASH_FUNC_(.+)%%", re.S)


class _Shell(NamedTuple):
    """One shell's vocabulary."""

    flag: str  # instead of -lc: no start-up files
    run: str  # reaches the real command behind a function or alias of that name
    source: str
    quiet: str  # keeps traps from writing between the marks, and from running for a mere look
    aliases: str
    functions: str
    extra: str  # bash: its second set of options; zsh: where autoloaded functions are found
    rc: str  # reads what an interactive shell would read, as the reference does
    free: str  # takes the word `run` back from a function of that name, in a subshell
    taken: str = "\\:"  # prints that function
    is_taken: str = ""  # whether there is one, if that must be known


_FREE_DECLARE: Final = "\\unset -f declare"
# There `unset` and `trap` come before functions of that name, which can be had in no other way.
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
        functions="typeset -f 2>/dev/null",  # dash has no such thing, and no other way to tell
        extra="true",
        rc="""case ${ENV-} in "") ;; *) \\eval "\\set -- \\"$ENV\\""
if \\[ -r "$1" ]; then \\. "$1" || \\:; fi;; esac""",
        free="\\unset -f command",  # such words come before functions in sh, as `trap` does
    ),
}


class Dump(NamedTuple):
    """What a login shell printed about itself."""

    umask: str
    options: str
    aliases: str
    functions: str
    extra: str
    taken: str  # the function that has the name of the word by which all others are reached
    exports: dict[str, str]


class Snapshot(NamedTuple):
    """What start-up files did: to the environment, and to the shell as a script that repeats it."""

    exports: dict[str, str]
    unset: frozenset[str]
    state: bytes


def applies(request: ShellSnapshotRequest, argv: Sequence[str]) -> bool:
    """Whether this is a login shell with a script.

    Raises:
        UsageError: the scope is empty or too long, or no such shell is known.
    """
    if not 1 <= len(request.scope_id.encode()) <= MAX_SCOPE_BYTES:
        raise UsageError(f"shell snapshot scope must be non-empty and at most {MAX_SCOPE_BYTES} bytes")
    if len(argv) < 3 or argv[0] != request.shell.path or argv[1] != "-lc":
        return False
    if request.shell.name not in SHELLS:
        raise UsageError(f"shell snapshots are unsupported for shell `{request.shell.name}`")
    return True


def can_share(overlay: Mapping[str, str]) -> bool:
    """Functions that come with the request are its own, but a snapshot is shared with other requests."""
    return not any(_EXPORTED_FUNCTION.fullmatch(name) for name in overlay)


def withholds(policy: EnvPolicy | None) -> bool:
    """Is there anything that start-up files could export and the policy excludes?"""
    return policy is not None and bool(
        not policy.ignore_default_excludes or policy.exclude or policy.include_only
    )


def without_startup(
    name: str, argv: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The same script in a shell that reads no start-up files, so that nothing can be exported by them."""
    if name == "bash" and not can_share(env):  # a privileged bash would not take the functions of `env`
        return [argv[0], "-c", *argv[2:]], {key: value for key, value in env.items() if key != "BASH_ENV"}
    return [argv[0], SHELLS[name].flag, *argv[2:]], dict(env)


def capture_argv(name: str, argv: Sequence[str], nonce: str) -> list[str]:
    """The same login shell, printing its state instead of running the script."""
    shell = SHELLS[name]
    escaped = f"\\{shell.run}"
    plain = _dump(shell, escaped, nonce, free="", quiet=f"{escaped} {shell.quiet}")
    lines = [shell.rc, plain]
    if shell.is_taken:  # posix mode changes options, so it is entered only where there is no other way
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
        # The alternative keeps `set -e` in a start-up file from ending the dump.
        lines += [alone(f"{escaped} {command} || {escaped} true"), mark]
    lines += [f"({shell.taken})" if free else "\\:", mark, "/usr/bin/env -0", mark]
    return "\n".join(lines)


def parse(output: bytes, nonce: str) -> Dump | None:
    """The dump inside `output`, or None if it is not complete or cannot be trusted."""
    # Surrogate escapes keep bytes that are not UTF-8, as they do in os.environ.
    sections = output.decode("utf-8", "surrogateescape").split(f"\0{nonce}\0")
    if len(sections) != 9:
        return None
    _before, umask, options, aliases, functions, extra, taken, exports, _after = sections
    umask = umask.strip()
    if not _UMASK.fullmatch(umask):
        return None
    # zsh prints functions written with rc_quotes in a form it cannot read back.
    if ("-", "rcquotes") in _SET_LINE.findall(options):
        return None
    pairs = (entry.partition("=") for entry in exports.split("\0") if entry)
    return Dump(umask, options, aliases, functions, extra, taken, {name: value for name, _, value in pairs})


def snapshot(name: str, dump: Dump, before: Mapping[str, str], policy: EnvPolicy | None) -> Snapshot:
    """What start-up files changed, given the environment they ran in and the policy for what they export.

    Only changes count: the next command may come with another environment, and must not see this one's.
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
    """`env` as start-up files would have left it, except for what the request itself sets (`overlay`)."""
    changed = {name: value for name, value in env.items() if name not in taken.unset or name in overlay}
    changed.update((name, value) for name, value in taken.exports.items() if name not in overlay)
    return changed


def replay_argv(name: str, argv: Sequence[str]) -> list[str] | None:
    """The same script and parameters in a shell that restores state first; None if it would not fit."""
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
    """`text` as one word for any of the shells."""
    return "'" + text.replace("'", "'\\''") + "'"


def _restore_script(name: str, dump: Dump, exported: Mapping[str, bool]) -> bytes:
    run = f"\\{SHELLS[name].run}"
    head = [f"exec {STATE_FD}<&-", f"{run} umask {dump.umask}"]
    options = _SET_LINE.findall(dump.options)
    tail: list[str] = []
    match name:
        case "bash":
            head.append(f"{run} shopt -s extglob")  # function bodies may use it, whatever it was in the end
            for function, allowed in exported.items():
                tail.append(f"{run} declare -f {'-x' if allowed else '+x'} -- {quote(function)}")
            tail += [*_set_aliases(f"{run} alias --", dump.aliases), _set_options(run, options)]
            for sign in "su":
                names = [opt for s, opt in _SHOPT_LINE.findall(dump.extra) if s == sign]
                tail.append(" ".join([f"{run} shopt -{sign}", *(n for n in names if n not in _FIXED_SHOPTS)]))
        case "zsh":
            head.append(f"fpath=({dump.extra.strip()})")
            # zsh lists what differs from its defaults, and -f is one such difference. In braces, so
            # that all of it is parsed before the first alias exists.
            differing = [("+", "norcs"), *(opt for opt in options if opt[0] == "-")]
            aliases = [f"{run} {line}" for line in dump.aliases.splitlines() if line.startswith("alias ")]
            tail += ["{", f"{run} unalias -a", *aliases, _set_options(run, differing), "}"]
        case _:
            tail += [*_set_aliases(f"{run} alias", dump.aliases), _set_options(run, options)]
    # Last, because from then on that word means something else.
    script = "\n".join([*head, dump.functions, *tail, *filter(None, [dump.taken]), ""])
    return script.encode("utf-8", "surrogateescape")


def _set_aliases(command: str, listing: str) -> list[str]:
    return [f"{command} {word}" for word in _ALIAS_WORD.findall(listing) if "=" in word]


def _set_options(run: str, options: Sequence[tuple[str, str]]) -> str:
    words = [f"{sign}o {option}" for sign, option in options if option not in _FIXED_OPTIONS]
    return " ".join([f"{run} set", *words])
