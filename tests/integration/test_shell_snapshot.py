"""Snapshots with real shells: what start-up files did is there, and the script runs as it would without."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import NamedTuple

import pytest

from holdfast.server.processes.shellstate import STATE_FD, replay_argv
from holdfast.server.processes.snapshot import MAX_ENTRIES, RETRY_S, Capture, Prepared, ShellSnapshots
from holdfast.wire.environment import ShellInfo
from holdfast.wire.paths import PathUri
from holdfast.wire.processes import EnvPolicy, ShellSnapshotRequest, StartParams
from tests.support.patience import patient

PATH = "/usr/local/bin:/usr/bin:/bin"
PROFILES = {"bash": ".bash_profile", "sh": ".profile", "zsh": ".zprofile"}

# Puts the state where a launcher would, without touching the descriptors of the process under test.
ENTER = f"""
import json, os, sys
fd = int(sys.argv[1])
if fd >= 0 and fd != {STATE_FD}:
    os.dup2(fd, {STATE_FD})
    os.close(fd)
os.execve(sys.argv[3], sys.argv[3:], json.loads(sys.argv[2]))
"""
KEEP_ALL = EnvPolicy(inherit="all", ignore_default_excludes=True, exclude=[], set={}, include_only=[])


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


async def capture(
    argv: list[str], cwd: str, env: dict[str, str], stdout_limit: int, timeout_s: float
) -> bytes | None:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, env=env, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return output if process.returncode == 0 and len(output) <= stdout_limit else None


class Clock:
    """A clock that stands still until told otherwise."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Host:
    """One session on a host whose user has a given start-up file."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        self.name = name
        self.shell = str(shutil.which(name, path=PATH))
        self.home = tmp_path / "home"
        self.home.mkdir()
        self.clock = Clock()
        self.snapshots = ShellSnapshots(clock=self.clock)
        self.capture: Capture = capture
        self.env = {"HOME": str(self.home), "PATH": PATH}

    def profile(self, text: str) -> None:
        counted = f"echo x >>{self.home}/runs\n"
        (self.home / PROFILES[self.name]).write_text(counted + text, encoding="utf-8")

    def runs(self) -> int:
        return (self.home / "runs").read_text().count("x")

    async def run(
        self,
        script: str,
        *parameters: str,
        env: dict[str, str] | None = None,
        final: dict[str, str] | None = None,
        policy: EnvPolicy | None = None,
        scope: str = "scope",
    ) -> Ended:
        argv = [self.shell, "-lc", script, *parameters]
        env = self.env if env is None else env
        params = StartParams(
            process_id="p",
            argv=argv,
            cwd=PathUri.from_native(str(self.home)),
            env=env,
            tty=False,
            env_policy=policy,
            shell_snapshot=ShellSnapshotRequest(scope, ShellInfo(self.name, self.shell)),
        )
        prepared = await self.snapshots.apply(params, str(self.home), dict(final or env), self.capture)
        return await start(prepared, str(self.home))

    async def run_login_shell(self, script: str, *parameters: str) -> Ended:
        return await start(Prepared([self.shell, "-lc", script, *parameters], self.env, None), str(self.home))


async def start(prepared: Prepared, cwd: str) -> Ended:
    fd = -1
    if prepared.state is not None:
        fd = os.memfd_create("state")
        os.write(fd, prepared.state)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", ENTER, str(fd), json.dumps(prepared.env), *prepared.argv),
            cwd=cwd,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            pass_fds=() if fd < 0 else (fd,),
        )
    finally:
        if fd >= 0:
            os.close(fd)
    out, err = await asyncio.wait_for(process.communicate(), patient(40))
    return Ended(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture(params=list(PROFILES))
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return make_host(tmp_path, request.param)


@pytest.fixture
def bash(tmp_path: Path) -> Host:
    return make_host(tmp_path, "bash")


@pytest.fixture
def zsh(tmp_path: Path) -> Host:
    return make_host(tmp_path, "zsh")


def make_host(tmp_path: Path, name: str) -> Host:
    if shutil.which(name, path=PATH) is None:
        reason = f"{name} is not installed: NO SNAPSHOT OF {name.upper()} IS TESTED HERE"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Host(tmp_path, name)


COMMON = """
export FOO='bar baz' MULTI='one
two' SECRET_TOKEN=hush
alias shout='echo ALIASED'
set -o noclobber
umask 077
"""

SCRIPTS = {
    "exports": 'echo "$FOO|$MULTI"',
    "parameters": 'echo "$0|$1|$2|$#"',
    "options and umask": "umask; set -o | grep noclobber; case $- in *p*) echo privileged;; esac",
    "aliases": "shout 'it''s' \"$0\"",
    "exit status": "exit 7",
    "last status": "false",
    "errexit": "set -e; false; echo not reached",
    "syntax error": "echo before; if then",
    "here-document": "cat <<'X'\nit's $0\nX\n",
    "exec": "exec printf '%s\\n' replaced",
    "trailing comment": "echo one # two",
    "quotes and escapes": "echo 'a\\b' \"$(echo \"'x'\")\" \\\\; echo '\n'",
    "descriptors": "ls /proc/self/fd | grep -c .",
    "no trace in the environment": "env -u _ -u OLDPWD -u PATH | sort",
    "empty": "",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
async def test_a_script_runs_as_in_the_login_shell(host: Host, script: str) -> None:
    host.profile(COMMON)
    without = await host.run_login_shell(script, "zero", "a b", "it's")
    first = await host.run(script, "zero", "a b", "it's")
    second = await host.run(script, "zero", "a b", "it's")
    assert first[:2] == second[:2] == without[:2]
    assert host.runs() == 2, "once without a snapshot, once for both with one"


async def test_output_of_start_up_files_is_not_repeated(host: Host) -> None:
    host.profile("echo welcome; printf 'x\\0y'\n" + COMMON)
    assert await host.run('echo "$FOO"') == (0, "bar baz\n", "")


async def test_functions_and_shell_options_are_replayed(bash: Host) -> None:
    bash.profile(
        """
        shopt -s extglob nullglob; shopt -u sourcepath
        either() { case $1 in @(a|b)) echo "either $1";; esac; }
        greet() { echo "hello $1"; }
        name-with-dash() { cat <<X
it's $1
X
        }
        export -f greet
        """
    )
    script = "either a; name-with-dash b; bash -c 'greet b'; shopt sourcepath; set +o; declare -Fx"
    without = await bash.run_login_shell(script)
    assert await bash.run(script) == without
    assert without.stdout.startswith("either a\nit's b\nhello b\n")


async def test_functions_are_exported_as_far_as_the_policy_allows(bash: Host) -> None:
    bash.profile("a() { :; }; b() { :; }; declare() { :; }; export -f a b")
    policy = EnvPolicy(
        inherit="all", ignore_default_excludes=True, exclude=["*_b%%"], set={}, include_only=[]
    )
    ended = await bash.run("builtin declare -Fx; env | grep -o '^BASH_FUNC[^=]*'", policy=policy)
    assert ended == (0, "declare -fx a\nBASH_FUNC_a%%\n", "")


async def test_zsh_functions_and_every_kind_of_alias_are_replayed(zsh: Host) -> None:
    zsh.profile(
        """
        greet() { echo "hello $1" }
        alias -g LOUD='| tr a-z A-Z'
        alias -s txt='echo opened'
        alias builtins='echo x'
        setopt extended_glob null_glob
        fpath=($HOME/it\\'s $fpath); autoload -Uz later
        """
    )
    (zsh.home / "it's").mkdir()
    (zsh.home / "it's" / "later").write_text("echo loaded later\n")
    script = "greet LOUD; echo a LOUD; note.txt; later; alias -L; set +o; print none*"
    without = await zsh.run_login_shell(script)
    assert await zsh.run(script) == without
    assert "loaded later" in without.stdout
    assert "opened note.txt" in without.stdout


@pytest.mark.parametrize(
    "word", ["eval", "unset", "printf", "alias", "set", "umask", "exec", "export", "true"]
)
async def test_a_shadowed_builtin_does_not_break_the_snapshot(host: Host, word: str) -> None:
    if host.name == "sh" and word in ("eval", "unset", "set", "exec", "export"):
        host.profile("export FOO=bar")  # a special builtin there cannot be shadowed
    else:
        host.profile(f"export FOO=bar; {word}() {{ echo shadow; }}")
    assert await host.run('echo "$FOO"') == (0, "bar\n", "")
    assert await host.run('echo "$FOO"') == (0, "bar\n", "")
    assert host.runs() == 1


async def test_a_taken_builtin_word_does_not_break_the_snapshot(host: Host) -> None:
    word = "command" if host.name == "sh" else "builtin"
    host.profile(f"export FOO=bar; {word}() {{ echo own; }}")
    assert await host.run('echo "$FOO"') == (0, "bar\n", "")
    assert host.runs() == (2 if host.name == "zsh" else 1)  # zsh has no way past it
    if host.name == "bash":
        assert await host.run("builtin echo x") == (0, "own\n", "")


RC = {"bash": ".bashrc", "zsh": ".zshrc", "sh": "rc file"}


async def test_what_an_interactive_shell_would_read_is_part_of_the_snapshot(host: Host) -> None:
    (host.home / RC[host.name]).write_text("export FROM_RC=yes; alias say='echo said'\n", "utf-8")
    host.profile(f"export ENV='$HOME/{RC['sh']}'")
    assert await host.run('echo "$FROM_RC"') == (0, "yes\n", "")


async def test_bash_with_a_start_up_file_of_its_own_reads_no_other(bash: Host) -> None:
    (bash.home / ".bashrc").write_text("export FROM_RC=yes\n", "utf-8")
    bash.profile("export BASH_ENV=/dev/null")
    assert await bash.run('echo "$FROM_RC"') == (0, "\n", "")


HIDING = EnvPolicy(inherit="all", ignore_default_excludes=False, exclude=["HIDDEN*"], set={}, include_only=[])


@pytest.mark.parametrize(
    "broken",
    [
        "builtin() { :; }; command() { :; }; unset() { :; }",
        "exit() { :; }; exec 1>&-",
        "trap 'exit 3' EXIT",
        "",
    ],
)
async def test_no_fallback_shows_what_the_policy_excludes(host: Host, broken: str) -> None:
    host.profile(f"export HIDDEN=1 MY_TOKEN=2 SEEN=3; {broken}")
    ended = await host.run("env", policy=HIDING)
    assert "HIDDEN" not in ended.stdout
    assert "TOKEN" not in ended.stdout


async def test_no_fallback_for_a_request_that_cannot_share_shows_it_either(host: Host) -> None:
    host.profile("export HIDDEN=1 MY_TOKEN=2")
    own = {"BASH_FUNC_mine%%": "() { echo mine; }"}
    ended = await host.run("env; [ -z ${BASH_VERSION-} ] || mine", policy=HIDING, env=host.env | own)
    assert "HIDDEN" not in ended.stdout
    assert "TOKEN" not in ended.stdout
    assert host.name != "bash" or ended.stdout.endswith("mine\n")
    long = await host.run(f"env #{'x' * 127_000}", policy=HIDING)
    assert (long.code, "HIDDEN" in long.stdout) == (0, False)


async def test_functions_that_zsh_cannot_print_are_left_to_the_login_shell(zsh: Host) -> None:
    zsh.profile("setopt rc_quotes\nquote() { echo 'it''s' }")
    assert await zsh.run("quote") == (0, "it's\n", "")
    assert zsh.runs() == 2


async def test_traps_and_tracing_in_start_up_files_do_not_spoil_the_dump(bash: Host) -> None:
    bash.profile(
        "export FOO=bar; trap 'echo debug' DEBUG; trap 'echo bye; exit 3' EXIT; set -eux -o pipefail"
    )
    ended = await bash.run('echo "$FOO $-"; false; echo not reached')
    assert (ended.code, ended.stdout) == (1, "bar ehuxBc\n")
    assert "/dev/fd" not in ended.stderr


async def test_a_large_multi_byte_state_survives(host: Host) -> None:
    text = "žluťoučký 漢字 🦀 " * 1000
    host.profile(f"export BIG='{text}'\nbig() {{ printf '%s' '{text}'; }}\nalias say='echo {text}'\n")
    assert (await host.run('printf %s "$BIG"')).stdout == text
    if host.name != "sh":
        assert (await host.run("big")).stdout == text
    assert host.runs() == 1


async def test_exports_obey_the_policy_even_if_nothing_is_inherited(host: Host) -> None:
    host.profile(COMMON + "export DROP_ME=1 KEPT=old")
    policy = EnvPolicy(
        inherit="none", ignore_default_excludes=False, exclude=["drop*"], set={"KEPT": "new"}, include_only=[]
    )
    ended = await host.run('echo "$FOO|$SECRET_TOKEN|$DROP_ME|$KEPT"', policy=policy)
    assert ended.stdout == "bar baz|||new\n"


async def test_the_request_overrides_the_snapshot_and_the_command_overrides_both(host: Host) -> None:
    host.profile("export FOO=profile PATH=/profile:$PATH BAR=profile")
    ended = await host.run('BAR=x; echo "$FOO|$BAR|$PATH"', env={**host.env, "FOO": "request"})
    assert ended.stdout == f"request|x|{PATH}\n"


async def test_the_environment_of_one_request_does_not_reach_another(host: Host) -> None:
    host.profile("export FOO=bar; unset GONE")
    await host.run("true", env={**host.env, "MINE": "1"})
    ended = await host.run('echo "${FOO-}|${MINE-}|${GONE-}"', final={**host.env, "GONE": "inherited"})
    assert ended.stdout == "bar||inherited\n", "GONE was not there to be unset when the snapshot was taken"
    assert host.runs() == 1


async def test_what_start_up_files_unset_is_not_inherited(host: Host) -> None:
    host.profile("unset GONE ASKED")
    env = {**host.env, "ASKED": "1"}
    ended = await host.run('echo "${GONE-}|${ASKED-}"', env=env, final={**env, "GONE": "inherited"})
    assert ended.stdout == "|1\n"


async def test_concurrent_starts_share_one_capture(host: Host) -> None:
    host.profile(COMMON)
    ended = await asyncio.gather(*(host.run('echo "$FOO"') for _ in range(4)))
    assert {end.stdout for end in ended} == {"bar baz\n"}
    assert host.runs() == 1


async def test_a_failed_capture_runs_the_original_and_is_retried_later(host: Host) -> None:
    host.profile("exit 3")
    assert (await host.run("echo not reached")).code == 3
    assert (await host.run("echo not reached")).code == 3
    assert host.runs() == 3, "one capture, two commands"
    host.profile(COMMON)
    host.clock.now += RETRY_S
    assert await host.run('echo "$FOO"') == (0, "bar baz\n", "")
    assert await host.run('echo "$FOO"') == (0, "bar baz\n", "")
    assert host.runs() == 4


async def test_too_much_output_is_a_failed_capture(bash: Host) -> None:
    bash.profile("head -c 600000 /dev/zero\n")
    assert len((await bash.run("echo end")).stdout) == 600_004


async def test_the_least_recently_used_scope_is_dropped(bash: Host) -> None:
    bash.profile("")
    for scope in range(MAX_ENTRIES):
        await bash.run(":", scope=str(scope))
    await bash.run(":", scope="0")
    await bash.run(":", scope="one more")
    assert bash.runs() == MAX_ENTRIES + 1
    await bash.run(":", scope="0")
    assert bash.runs() == MAX_ENTRIES + 1
    await bash.run(":", scope="1")
    assert bash.runs() == MAX_ENTRIES + 2


async def test_another_policy_or_directory_is_another_snapshot(bash: Host) -> None:
    bash.profile("")
    await bash.run(":")
    await bash.run(":", policy=KEEP_ALL)
    assert bash.runs() == 2


async def test_a_failed_restore_is_said_and_the_command_still_runs(host: Host) -> None:
    host.profile(COMMON)
    argv = replay_argv(host.name, [host.shell, "-lc", 'echo "$0 runs"; exit 5', "zero"])
    assert argv is not None
    expected = (5, "zero runs\n", "failed to restore shell snapshot\n")
    for state in (None, b"f() {\n", b"false\n"):
        assert await start(Prepared(argv, host.env, state), str(host.home)) == expected


async def test_a_cancelled_capture_is_taken_over_by_the_next_start(tmp_path: Path) -> None:
    started = asyncio.Event()
    calls = 0

    async def stuck_once(
        argv: list[str], cwd: str, env: dict[str, str], stdout_limit: int, timeout_s: float
    ) -> bytes | None:
        nonlocal calls
        calls += 1
        started.set()
        if calls == 1:
            await asyncio.Event().wait()
        return None

    host = make_host(tmp_path, "bash")
    host.profile("")
    host.capture = stuck_once
    first = asyncio.ensure_future(host.run("echo first"))
    await started.wait()
    second = asyncio.ensure_future(host.run("echo second"))
    first.cancel()
    assert (await asyncio.wait_for(second, patient(40))).stdout == "second\n"
    assert first.cancelled()
    assert calls == 2
