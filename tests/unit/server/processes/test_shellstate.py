import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.protocol import orders
from holdfast.server.processes import shellstate
from holdfast.server.processes.shellstate import Dump, Snapshot
from holdfast.wire.environment import ShellInfo
from holdfast.wire.processes import EnvPolicy, ShellSnapshotRequest
from tests.support.rows import every_row

LOGIN = ["/bin/bash", "-lc", "script"]
EMPTY = Dump(umask="022", options="", aliases="", functions="", extra="", taken="", exports={})


def request(*, scope: str = "scope", name: str = "bash", path: str = "/bin/bash") -> ShellSnapshotRequest:
    return ShellSnapshotRequest(scope, ShellInfo(name, path))


def printed(nonce: str, *sections: str) -> bytes:
    return f"\0{nonce}\0".join(sections).encode("utf-8", "surrogateescape")


# --- which commands


@every_row(
    ("argv", "expected"),
    [
        (LOGIN, True),
        ([*LOGIN, "zero", "one"], True),
        ([], False),
        (LOGIN[:2], False),
        (["/bin/bash", "-c", "script"], False),
        (["/bin/bash", "-l", "-c", "script"], False),
        (["bash", "-lc", "script"], False),
    ],
)
def test_only_a_login_shell_with_a_script_has_a_snapshot(argv: list[str], expected: bool) -> None:
    assert shellstate.applies(request(), argv) is expected


def test_a_request_that_brings_its_own_functions_has_none() -> None:
    assert not shellstate.can_share({"BASH_FUNC_f%%": "() { :; }"})


@pytest.mark.parametrize("scope", ["", "x" * 257, "é" * 129])
def test_a_scope_is_refused_before_anything_else(scope: str) -> None:
    with pytest.raises(UsageError, match=r"^shell snapshot scope must be non-empty and at most 256 bytes$"):
        shellstate.applies(request(scope=scope, name="fish"), [])


def test_a_scope_of_256_bytes_is_accepted() -> None:
    assert shellstate.applies(request(scope="é" * 128), LOGIN)


def test_an_unknown_shell_is_refused_only_for_a_command_it_would_apply_to() -> None:
    assert not shellstate.applies(request(name="fish"), ["/bin/ls"])
    with pytest.raises(UsageError, match=r"^shell snapshots are unsupported for shell `fish`$"):
        shellstate.applies(request(name="fish"), LOGIN)


# --- asking


@pytest.mark.parametrize("name", list(shellstate.SHELLS))
def test_the_question_replaces_the_script_and_keeps_its_parameters(name: str) -> None:
    shell, flag, script, *rest = shellstate.capture_argv(name, [*LOGIN, "zero", "one"], "n0nce")
    assert (shell, flag, rest) == ("/bin/bash", "-lc", ["zero", "one"])
    assert script.count("n0nce") == (16 if name == "bash" else 8)
    words = {line.split()[0] for line in script.splitlines()} - {"if", "else", "fi", "case"}
    assert all(word.startswith(("\\", "(", "/usr/bin/env")) for word in words), (
        "nothing an alias could change"
    )


def test_a_complete_answer_is_read_between_the_marks() -> None:
    answer = printed(
        "n", "noise\0\n", "0077\n", "set -o x\n", "al", "fu\udcff", "ex", "ta", "A=1\0B=x=\ny\0", "noise"
    )
    assert shellstate.parse(answer, "n") == Dump(
        "0077", "set -o x\n", "al", "fu\udcff", "ex", "ta", {"A": "1", "B": "x=\ny"}
    )


@every_row(
    "answer",
    [
        b"",
        b"only noise",
        printed("n", "", "022", "", "", "", "", "", "A=1\0"),
        printed("n", "", "022", "", "", "", "", "", "A=1\0", "", ""),
        printed("other", "", "022", "", "", "", "", "", "A=1\0", ""),
        printed("n", "", "u=rwx", "", "", "", "", "", "A=1\0", ""),
        printed("n", "", "022; reboot", "", "", "", "", "", "A=1\0", ""),
        printed("n", "", "022", "set +o x\nset -o rcquotes\n", "", "", "", "", "A=1\0", ""),
    ],
)
def test_an_answer_that_is_incomplete_or_cannot_be_trusted_is_none(answer: bytes) -> None:
    assert shellstate.parse(answer, "n") is None


# --- what changed


def test_only_what_start_up_files_changed_is_kept() -> None:
    after = {"SAME": "1", "NEW": "2", "CHANGED": "3", "PWD": "/x", "OLDPWD": "/y", "SHLVL": "2", "_": "z"}
    before = {"SAME": "1", "CHANGED": "0", "GONE": "4", "PWD": "/", "SHLVL": "1"}
    taken = shellstate.snapshot("bash", EMPTY._replace(exports=after), before, None)
    assert taken.exports == {"NEW": "2", "CHANGED": "3"}
    assert taken.unset == {"GONE"}


def test_names_a_shell_keeps_for_itself_are_never_unset() -> None:
    assert shellstate.snapshot("sh", EMPTY, {"OLDPWD": "/", "A": "1"}, None).unset == {"A"}


def test_exports_pass_the_policy_whatever_it_inherits() -> None:
    policy = EnvPolicy("none", False, ["drop*"], {"SET": "policy"}, ["a*", "set", "node*"])
    exports = {
        "A": "1",
        "A_KEY": "2",
        "DROPPED": "3",
        "B": "4",
        "SET": "profile",
        "NODE_REPL_AUTH_TOKEN": "5",
    }
    taken = shellstate.snapshot("zsh", EMPTY._replace(exports=exports), {}, policy)
    assert taken.exports == {"A": "1", "SET": "policy"}


def test_the_export_of_functions_becomes_part_of_the_state_as_far_as_the_policy_allows() -> None:
    policy = EnvPolicy("all", True, ["*secret*"], {}, [])
    exports = {
        "BASH_FUNC_it's%%": "() { :; }",
        "BASH_FUNC_secret%%": "() { :; }",
        "BASH_FUNC_old%%": "x",
        "A": "1",
    }
    taken = shellstate.snapshot("bash", EMPTY._replace(exports=exports), {"BASH_FUNC_old%%": "x"}, policy)
    assert taken.exports == {"A": "1"}
    assert taken.state.decode().splitlines()[4:7] == [
        "\\builtin declare -f -x -- 'it'\\''s'",
        "\\builtin declare -f +x -- 'secret'",
        "\\builtin declare -f -x -- 'old'",
    ]


def test_the_request_wins_over_the_snapshot() -> None:
    taken = Snapshot({"NEW": "s", "MINE": "s", "CHANGED": "s"}, frozenset({"GONE", "KEPT"}), b"")
    env = {"MINE": "r", "KEPT": "r", "GONE": "policy", "CHANGED": "policy", "OTHER": "policy"}
    assert shellstate.replay_env(env, {"MINE": "r", "KEPT": "r"}, taken) == {
        "MINE": "r",
        "KEPT": "r",
        "CHANGED": "s",
        "OTHER": "policy",
        "NEW": "s",
    }


# --- putting it back


def test_the_state_of_bash_reads_functions_before_aliases_and_options() -> None:
    dump = Dump(
        umask="0077",
        options="set -o errexit\nset +o posix\nset -o noexec\nset +o privileged\n",
        aliases="alias ll='echo '\\''x\ny'\\'''\nalias -- -='cd -'\n",
        functions="f () \n{ \n    :\n}\n",
        extra="shopt -s extglob\nshopt -u login_shell\nshopt -u sourcepath\n",
        taken="",
        exports={},
    )
    assert shellstate.snapshot("bash", dump, {}, None).state.decode() == (
        "exec 9<&-\n"
        "\\builtin umask 0077\n"
        "\\builtin shopt -s extglob\n"
        "f () \n{ \n    :\n}\n\n"
        "\\builtin alias -- ll='echo '\\''x\ny'\\'''\n"
        "\\builtin alias -- -='cd -'\n"
        "\\builtin set -o errexit +o posix\n"
        "\\builtin shopt -s extglob\n"
        "\\builtin shopt -u sourcepath\n"
    )


def test_the_state_of_zsh_names_what_differs_from_its_defaults() -> None:
    dump = Dump(
        umask="022",
        options="set +o noaliases\nset -o noclobber\nset -o singlecommand\n",
        aliases="alias -g G='| cat'\nalias -s txt=less\n",
        functions="f () {\n\t:\n}\n",
        extra="'/a b' '/c'\n",
        taken="",
        exports={},
    )
    assert shellstate.snapshot("zsh", dump, {}, None).state.decode() == (
        "exec 9<&-\n"
        "\\builtin umask 022\n"
        "fpath=('/a b' '/c')\n"
        "f () {\n\t:\n}\n\n"
        "{\n"
        "\\builtin unalias -a\n"
        "\\builtin alias -g G='| cat'\n"
        "\\builtin alias -s txt=less\n"
        "\\builtin set +o norcs -o noclobber\n"
        "}\n"
    )


def test_the_state_of_sh_turns_its_list_of_aliases_into_commands() -> None:
    dump = EMPTY._replace(
        options="set -o noclobber\nset +o stdin\n", aliases="a='one\ntwo'\nb='it'\"'\"'s'\nalias c=\\$x\n"
    )
    assert shellstate.snapshot("sh", dump, {}, None).state.decode() == (
        "exec 9<&-\n"
        "\\command umask 022\n"
        "\n"
        "\\command alias a='one\ntwo'\n"
        "\\command alias b='it'\"'\"'s'\n"
        "\\command alias c=\\$x\n"
        "\\command set -o noclobber\n"
    )


def test_bytes_that_are_not_text_survive() -> None:
    dump = EMPTY._replace(functions="f() { echo \udcff; }")
    assert b"echo \xff;" in shellstate.snapshot("bash", dump, {}, None).state


@pytest.mark.parametrize(
    ("name", "flag", "start", "end"),
    [
        ("bash", "-pc", "set +p; if ! . /dev/fd/9 ", "fi\nit's\n"),
        ("zsh", "-fc", "if ! . /dev/fd/9 ", "fi\nbuiltin eval 'it'\\''s\n'"),
        ("sh", "-c", "if ! command . /dev/fd/9 ", "fi\nit's\n"),
    ],
)
def test_the_script_follows_the_restoring_line(name: str, flag: str, start: str, end: str) -> None:
    argv = shellstate.replay_argv(name, ["/bin/x", "-lc", "it's\n", "zero", "one"])
    assert argv is not None
    assert (argv[0], argv[1], argv[3:]) == ("/bin/x", flag, ["zero", "one"])
    assert argv[2].startswith(start)
    assert argv[2].endswith(end)


@pytest.mark.parametrize("name", list(shellstate.SHELLS))
def test_a_script_that_would_no_longer_fit_is_left_alone(name: str) -> None:
    short = shellstate.replay_argv(name, ["/bin/x", "-lc", ""])
    assert short is not None
    room = shellstate.MAX_SCRIPT_BYTES - len(short[2])
    assert shellstate.replay_argv(name, ["/bin/x", "-lc", "é" * (room // 2)]) is not None
    assert shellstate.replay_argv(name, ["/bin/x", "-lc", "é" * (room // 2 + 1)]) is None


def test_the_launcher_puts_the_state_where_the_script_looks_for_it() -> None:
    """Two layers that may not import each other: the script is pure, the launcher standard library only."""
    assert shellstate.STATE_FD == orders.STATE_FD
