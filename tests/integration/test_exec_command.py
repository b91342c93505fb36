"""`holdfast exec` as people use it: the real command, on pipes and on a real terminal."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.support import identity
from tests.support.exec_command import WAIT_S, Place, Screen, gone, place
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@pytest.fixture
def own() -> Iterator[Place]:
    with place(identity.SELF) as made:
        yield made


def mark() -> str:
    """An argument for sleep by which a process can be found."""
    return f"8{uuid.uuid4().int % 10**7:07}"


def unwrapped(text: str) -> str:
    return " ".join(text.split())


# --- the command's own behaviour comes through


def test_output_and_exit_code_are_the_commands_own(anyone: Place) -> None:
    done = anyone.sh("echo out; echo err >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "out\n", "err\n")
    assert anyone.sh("kill -TERM $$").code == 143
    assert anyone.run("--", "id", "-u").out == f"{anyone.uid}\n"


def test_standard_input_is_passed_on_and_ends(own: Place) -> None:
    data = os.urandom(300_000).hex().encode()
    assert own.run("--", "cat", feed=data).out.encode() == data
    assert own.run("--", "true", feed=data).code == 0


def test_output_is_shown_when_it_is_written(own: Place) -> None:
    with own.start("--", "sh", "-c", "echo first; read x; echo $x") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"first\n"
        child.stdin.write(b"second\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"second\n"


def test_both_outputs_into_one_keep_their_order(own: Place) -> None:
    script = "for i in $(seq 200); do echo $i; echo $i >&2; done"
    with own.start("--", "sh", "-c", script, stderr=subprocess.STDOUT) as child:
        out, _ = child.communicate(timeout=WAIT_S)
    assert out.split() == [b"%d" % i for i in range(1, 201) for _ in "12"]


def test_a_reader_that_goes_away_ends_the_command(own: Place) -> None:
    with own.start("--", "yes") as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(WAIT_S) == 128 + signal.SIGPIPE


def test_output_that_cannot_be_written_is_told_and_no_success(own: Place) -> None:
    told = b"holdfast: cannot write standard output: No space left on device\n"
    for script, code in (("echo x", 74), ("echo x; exit 3", 3), ("yes", 74)):
        done = subprocess.run(
            ["sh", "-c", '"$@" >/dev/full', "sh", *own.argv("--", "sh", "-c", script)],
            cwd=own.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, told), script


@pytest.mark.parametrize(
    ("closed", "out", "err"), [("<&- >&-", b"", b"end\n"), ("2>&-", b"x\n", b""), ("<&- >&- 2>&-", b"", b"")]
)
def test_closed_standard_streams_are_empty_ones(own: Place, closed: str, out: bytes, err: bytes) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *own.argv("--", "sh", "-c", "cat && echo x && echo end >&2")],
        cwd=own.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, out, err)


def test_what_outlives_the_command_is_ended(own: Place) -> None:
    for flag in ("--workspace-write", "--full-access"):
        name = mark()
        done = own.sh(f"sleep {name} & setsid sleep {name} & echo started", flag)
        assert (done.code, done.out) == (0, "started\n")
        assert gone(name)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_us_is_for_the_command_and_its_tree(anyone: Place, signum: int, code: int) -> None:
    name = mark()
    with anyone.start("--", "sh", "-c", f"setsid sleep {name} & echo up; exec sleep {name}") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signum)
        assert child.wait(WAIT_S) == code
    assert gone(name)


def test_a_command_may_answer_a_signal_and_is_killed_if_it_ignores_it(own: Place) -> None:
    for script, code in (("trap 'exit 9' TERM", 9), ("trap '' TERM", 137)):
        with own.start("--", "sh", "-c", f"{script}; echo up; while :; do sleep 0.1; done") as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            child.terminate()
            assert child.wait(WAIT_S) == code


def test_nothing_is_left_when_we_are_killed(own: Place) -> None:
    name = mark()
    with own.start("--", "sh", "-c", f"echo up; exec sleep {name}") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.kill()
    assert gone(name)


# --- the limits


def test_the_directory_is_writable_and_nothing_around_it(anyone: Place) -> None:
    script = "for d in . /tmp ../outside .git; do echo x > $d/hf$$ && echo $d && rm $d/hf$$; done 2>/dev/null"
    assert anyone.sh(script).out == ".\n/tmp\n"
    assert anyone.sh(script, "--read-only").out == ""
    assert anyone.sh(script, "--full-access").out == ".\n/tmp\n../outside\n.git\n"


def test_a_denial_is_told_and_its_flag_allows_exactly_that(anyone: Place) -> None:
    script = f"echo x > {anyone.outside}/new"
    done = anyone.sh(script)
    assert done.code == 2
    assert f"holdfast: the sandbox denies writing {anyone.outside}/new (claimed by the output)" in done.err
    flag = re.search(r"to allow it: (\S+) (\S+)\n", done.err)
    assert flag is not None
    assert flag.groups() == ("--allow-write", str(anyone.outside))
    assert anyone.sh(script, *flag.groups()).code == 0
    assert (anyone.outside / "new").read_text("utf-8") == "x\n"


def test_a_denial_is_told_where_the_locale_cannot_spell_the_name(own: Place) -> None:
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = own.call(own.argv("--", "sh", "-c", "echo x > /etc/grün; exit 5"), env=ascii_only)
    assert done.code == 5
    assert "the sandbox denies writing /etc/gr" in done.err


def test_an_ordinary_failure_is_not_called_a_denial(own: Place) -> None:
    done = own.sh("cat missing; exit 1")
    assert (done.code, "holdfast" in done.err) == (1, False)


def test_the_network_is_off_unless_it_is_switched_on(anyone: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        command = ("--", "/usr/bin/python3", "-c", code)
        done = anyone.run(*command)
        assert (done.code, "to allow it: --network on\n" in done.err) == (1, True)
        assert anyone.run("--network", "on", *command).code == 0
        assert anyone.run("--full-access", *command).code == 0
        assert anyone.run("--full-access", "--network", "off", *command).code == 1


def test_a_path_or_a_pattern_can_be_denied(own: Place) -> None:
    for name in ("plain", "a.pem", "odd[1]"):
        (own.workspace / name).write_text(name, "utf-8")
    for flag, name in (("plain", "plain"), ("*.pem", "a.pem"), ("odd[1]", "odd[1]")):
        assert own.run("--", "cat", name).out == name
        for base in ("--workspace-write", "--full-access"):
            done = own.run(base, "--deny", flag, "--", "cat", name)
            assert (done.code, done.out) == (1, "")


def test_a_missing_path_can_be_allowed_only_where_it_could_be_created(own: Place) -> None:
    (own.workspace / ".git").rmdir()
    assert own.run("--allow-write", ".git", "--", "mkdir", ".git").code == 0
    assert (own.workspace / ".git").is_dir()
    done = own.run("--allow-write", "../outside/no/no.txt", "--", "true")
    assert done.code == 2
    assert f"--allow-write {own.outside}/no/no.txt: cannot make it: No such file or directory" in done.err
    assert not (own.outside / "no").exists()


def test_a_file_that_is_missing_is_made_and_granted_alone(own: Place) -> None:
    asked = ("--allow-write", "../outside/no.txt")
    assert f"make the file {own.outside}/no.txt" in own.run(*asked, "--print-plan").out
    assert not (own.outside / "no.txt").exists()
    done = own.sh("echo x > ../outside/no.txt; echo x > ../outside/b", *asked)
    assert ((own.outside / "no.txt").read_text(), (own.outside / "b").exists()) == ("x\n", False)
    assert done.code != 0
    assert (own.outside / "no.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("watch", [[], ["--watch"]], ids=["claimed", "watched"])
def test_the_printed_grant_for_a_file_in_the_home_is_that_file(own: Place, watch: list[str]) -> None:
    """And not the whole home, which the directory of that file is."""
    script = "echo x > ../notes.txt"
    flag = re.search(r"to allow it: (--allow-write) (\S+)", own.sh(script, *watch).err)
    assert flag is not None
    assert flag.groups() == ("--allow-write", f"{own.top}/notes.txt")
    assert f"(--allow-write {own.top}/notes.txt allows it)" in own.run("--explain", "../notes.txt").out
    assert own.sh(script, *flag.groups()).code == 0
    assert (own.top / "notes.txt").read_text() == "x\n"
    refused = own.sh("echo x > ../other.txt", *flag.groups())
    assert refused.code != 0


CALLS = [["./script"], ["sh", "-c", "./script"], ["bash", "-c", "./script"], ["env", "./script"]]
ONLY_THIS = '[filesystem]\n":minimal" = "read"\n":workspace" = "write"\n'


@every_row(
    ("called", "line", "linked", "asked"),
    [
        (called, line, linked, asked)
        for called, line in zip(CALLS, ["#!{}", "#!/usr/bin/env {}", "#!{}", "#!{}"], strict=True)
        for linked, asked in [
            (False, ["--deny", "../outside"]),
            (False, ["--profile", "../p.toml"]),
            (True, ["--profile", "../p.toml"]),
            (True, ["--deny", "../outside/bin"]),
        ]
    ],
)
def test_the_printed_grant_for_an_interpreter_that_is_hidden_is_the_one_that_works(
    own: Place, called: list[str], line: str, linked: bool, asked: list[str]
) -> None:
    """It may take two where a link and what it leads to are both hidden."""
    shutil.rmtree(own.outside)
    (own.outside / "bin").mkdir(parents=True)
    (own.top / "p.toml").write_text(ONLY_THIS, "utf-8")
    tool, real = own.outside / "bin" / "tool", own.outside / "real"
    if linked:
        tool.symlink_to(real)
    shutil.copy(shutil.which("dash") or "/bin/sh", real if linked else tool)
    script = own.workspace / "script"
    script.write_text(f"{line.format(tool)}\necho ran\n", "utf-8")
    script.chmod(0o755)
    told: list[str] = []
    for _ in range(2):
        done = own.run(*asked, *told, "--", *called)
        assert f"{tool if not told else real}" in done.err
        flag = re.search(r"to allow it: (--allow-read) (\S+)", done.err)
        if flag is None:  # none allows a link to be seen in a directory that is itself denied
            assert (linked, asked[0]) == (True, "--deny")
            return
        told += flag.groups()
        done = own.run(*asked, *told, "--", *called)
        if done.code == 0:
            break
    assert (done.code, done.out) == (0, "ran\n"), (told, done.err)


def test_a_directory_that_is_missing_is_made_and_granted_alone(own: Place) -> None:
    wanted = own.outside / ".state" / "tool"
    asked = ("--allow-write", "../outside/.state/tool")
    planned = own.run(*asked, "--print-plan")
    assert f"make the directory {wanted}, which is missing, and let it be written" in planned.out
    assert not wanted.exists()
    done = own.sh("echo x > ../outside/.state/tool/a; echo x > ../outside/b", *asked)
    assert ((wanted / "a").read_text(), (own.outside / "b").exists(), done.code != 0) == ("x\n", False, True)
    assert wanted.stat().st_mode & 0o777 == 0o700


def test_the_printed_grant_for_a_linked_interpreter_is_the_one_that_works(own: Place) -> None:
    real = own.outside / "bin"
    real.mkdir()
    shutil.copy(shutil.which("dash") or "/bin/sh", real / "tool")
    (own.workspace / "tool").symlink_to(real / "tool")
    asked = ("--deny", str(own.outside))
    flag = re.search(r"to allow it: (--allow-read) (\S+)", own.sh("./tool -c true", *asked).err)
    assert flag is not None
    assert flag.groups() == ("--allow-read", str(real / "tool"))
    assert own.sh("./tool -c true", *asked, *flag.groups()).code == 0


def test_the_printed_grant_for_a_missing_directory_is_the_one_that_works(own: Place) -> None:
    script = "mkdir -p ../outside/.cache/tool && echo x > ../outside/.cache/tool/a"
    flag = re.search(r"to allow it: (--allow-write) (\S+)", own.sh(script).err)
    assert flag is not None
    assert flag.groups() == ("--allow-write", f"{own.outside}/.cache")
    assert own.sh(script, *flag.groups()).code == 0


def test_another_directory_is_the_workspace_there(own: Place) -> None:
    done = own.sh("pwd; echo x > new; echo x > ../ws/new", "--cwd", "../outside")
    assert done.out == f"{own.outside}\n"
    assert own.run("--cwd", "../outside", "--", "printenv", "PWD").out == f"{own.outside}\n"
    assert (own.outside / "new").exists()
    assert not (own.workspace / "new").exists()


def test_the_file_behind_standard_input_cannot_be_opened_for_writing(own: Place) -> None:
    secret = own.outside / "secret"
    secret.write_text("before", "utf-8")
    script = "cat; echo after > /proc/self/fd/0"
    with secret.open("rb") as file, own.start("--", "sh", "-c", script, stdin=file.fileno()) as child:
        out, _ = child.communicate(timeout=WAIT_S)
    assert out == b"before"
    assert secret.read_text("utf-8") == "before"


def test_a_profile_says_it_all(anyone: Place) -> None:
    text = '[filesystem]\n":minimal" = "read"\n":workspace" = "write"\n"./*.key" = "deny"\n'
    (anyone.top / "p.toml").write_text(text, "utf-8")
    (anyone.workspace / "a.key").write_text("key", "utf-8")
    (anyone.outside / "file").write_text("outside", "utf-8")
    script = f"echo x > new && cat new; cat a.key {anyone.outside}/file"
    done = anyone.sh(script, "--profile", str(anyone.top / "p.toml"))
    assert (done.code, done.out) == (1, "x\n")
    allowed = anyone.sh(script, "--profile", "../p.toml", "--allow-read", str(anyone.outside))
    assert allowed.out == "x\noutside"


# --- what cannot begin


def test_a_missing_command_is_127_and_one_that_is_no_program_126(anyone: Place) -> None:
    for flag in ("--workspace-write", "--full-access"):
        done = anyone.run(flag, "--", "no-such-command")
        assert (done.code, done.err) == (127, "holdfast: no-such-command: command not found\n")
        done = anyone.run(flag, "--", "/etc/passwd")
        assert (done.code, done.err) == (126, "holdfast: /etc/passwd: Permission denied\n")


def test_a_program_that_the_policy_hides_is_said_to_be_hidden(own: Place) -> None:
    (own.top / "p.toml").write_text('[filesystem]\n":workspace" = "write"\n', "utf-8")
    done = own.run("--profile", "../p.toml", "--", "sh")
    assert done.code == 127
    assert "the sandbox denied reading /" in done.err


def test_a_policy_that_cannot_be_enforced_is_125_with_the_remedy(anyone: Place) -> None:
    (anyone.workspace / "link").symlink_to(anyone.outside)
    anyone.own()
    done = anyone.run("--deny", "link", "--", "touch", "ran")
    assert done.code == 125
    assert re.fullmatch(r"holdfast: .*\n  try: .*\n", done.err)
    assert not (anyone.workspace / "ran").exists()


def test_a_host_without_namespaces_is_125_and_runs_nothing(own: Place) -> None:
    done = own.run("--", *own.argv("--backend", "namespaces", "--", "touch", "ran"))
    assert done.code == 125
    assert done.err.startswith("holdfast: sandbox intent cannot be enforced")
    assert not (own.workspace / "ran").exists()


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--no-such-flag", "--", "true"],
        ["--network", "maybe", "--", "true"],
        ["--read-only", "--full-access", "--", "true"],
        ["--read-only", "--profile", "p.toml", "--", "true"],
        ["--profile", "missing.toml", "--", "true"],
        ["--cwd", "missing", "--", "true"],
        ["--allow-write", "", "--", "true"],
        ["--deny", "{a", "--explain", ""],
        ["--", ""],
    ],
    ids=" ".join,
)
def test_bad_input_gets_one_line_and_exit_code_2(own: Place, args: list[str]) -> None:
    done = own.run(*args)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"holdfast: .*\n", done.err)


@pytest.mark.parametrize(
    ("text", "key"), [('[filesystem]\n":rot" = "read"', ":rot"), ("a = 1", "a"), ("=", "")]
)
def test_a_mistake_in_a_profile_names_the_file_and_the_key(own: Place, text: str, key: str) -> None:
    (own.workspace / "p.toml").write_text(text, "utf-8")
    done = own.run("--profile", "p.toml", "--", "true")
    assert done.code == 2
    assert re.fullmatch(r"holdfast: p\.toml: .*\n", done.err)
    assert key in done.err


# --- asking without running


def test_a_plan_is_printed_and_nothing_is_run(anyone: Place) -> None:
    done = anyone.run("--print-plan", "--", "touch", "ran")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == "everything is readable, nothing is writable"
    assert f"{anyone.workspace} is writable" in lines
    assert f"{anyone.workspace}/.git is read-only" in lines
    assert "network is off" in lines
    assert "enforced by namespaces" in lines
    assert not (anyone.workspace / "ran").exists()
    assert "not confined" in anyone.run("--full-access", "--print-plan").out


def test_a_path_is_explained_and_nothing_is_run(own: Place) -> None:
    (own.workspace / "link").symlink_to(own.outside)
    done = own.run("--explain", ".git", "--explain", "link/no/file", "--", "touch", "ran")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"{own.workspace}/.git",
        f"  read: allowed: {own.workspace}/.git is read-only",
        f"  write: denied: {own.workspace}/.git is protected metadata of the workspace root {own.workspace}"
        f" (--allow-write {own.workspace}/.git allows it)",
        f"{own.workspace}/link/no/file, which is {own.outside}/no/file",
        "  read: allowed: everything is readable",
        f"  write: denied: outside the writable roots /tmp, {own.workspace}"
        f" (--allow-write {own.outside}/no allows it)",
    ]
    assert not (own.workspace / "ran").exists()


def test_a_machine_gets_one_object_last_on_standard_error(own: Place) -> None:
    done = own.sh("echo own >&2; echo x > ../outside/new", "--json")
    report = json.loads(done.err.splitlines()[-1])
    assert done.err.startswith("own\n")
    assert "holdfast:" not in done.err
    assert (report["schemaVersion"], report["exitCode"]) == (1, done.code)
    assert report["enforcement"]["backend"] == "namespaces"
    assert report["denial"]["grant"] == f"--allow-write {own.outside}"
    assert report["usage"]["peakRssBytes"] > 0
    assert report["error"] is None


def test_a_machine_gets_failures_plans_and_explanations_too(own: Place) -> None:
    failure = json.loads(own.run("--json", "--", "no-such-command").err)
    assert (failure["exitCode"], failure["usage"]) == (127, None)
    assert "no-such-command" in failure["error"]["message"]
    assert json.loads(own.run("--json", "--cwd", "no", "--", "true").err)["exitCode"] == 2
    planned = json.loads(own.run("--json", "--print-plan").out)
    assert f"{own.workspace} is writable" in planned["plan"]
    [answer] = json.loads(own.run("--json", "--explain", "x").out)["paths"]
    assert (answer["path"], answer["write"]["allowed"]) == (f"{own.workspace}/x", True)


def test_other_names_of_a_denied_file_are_told(anyone: Place) -> None:
    for name in ("key", "alone"):
        (anyone.workspace / name).write_text("secret", "utf-8")
    os.link(anyone.workspace / "key", anyone.outside / "key")
    anyone.own()
    done = anyone.run("--json", "--deny", "key", "--deny", "alone", "--", "true")
    [told] = json.loads(done.err)["enforcement"]["weakened"]
    assert told.startswith(f"{anyone.workspace}/key is denied by this name")


def test_the_help_does_not_load_what_runs_commands() -> None:
    code = (
        "import sys, holdfast.cli; sys.exit('holdfast.exec.run' in sys.modules or 'msgspec' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_S, check=False).returncode == 0


# --- on a terminal


def test_on_a_terminal_the_command_has_one_of_the_same_size(anyone: Place) -> None:
    with Screen(
        anyone, "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size; exit 5"
    ) as screen:
        assert screen.end() == 5
        assert screen.seen == b"33 101\r\n"
        assert screen.settings() == screen.before


def test_a_new_size_is_passed_on(own: Place) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
    with Screen(own, "--", "sh", "-c", script) as screen:
        screen.until(b"up\r\n")
        screen.resize(44, 55)
        screen.until(b"44 55\r\n")


def test_what_is_typed_reaches_the_command_and_is_echoed_once(own: Place) -> None:
    with Screen(own, "--", "sh", "-c", "echo up; read x; echo got $x") as screen:
        screen.until(b"up\r\n")
        screen.type(b"words\r")
        assert screen.end() == 0
        assert screen.seen == b"up\r\nwords\r\ngot words\r\n"


def test_control_c_interrupts_the_command_not_us(anyone: Place) -> None:
    # Short sleeps: an interrupt between `up` and the start of a long one would wait for its end.
    script = "trap 'echo caught; exit 4' INT; echo up; while :; do sleep 0.05; done"
    with Screen(anyone, "--", "sh", "-c", script) as screen:
        screen.until(b"up\r\n")
        screen.type(b"\x03")
        assert screen.end() == 4
        assert b"caught\r\n" in screen.seen
        assert screen.settings() == screen.before


def test_control_c_ends_a_command_that_does_not_mind(own: Place) -> None:
    with Screen(own, "--", "sh", "-c", "echo up; exec sleep 30") as screen:
        screen.until(b"up\r\n")
        screen.type(b"\x03")
        assert screen.end() == 130


def test_a_shell_on_a_terminal_has_job_control(own: Place) -> None:
    with Screen(own, "--", "sh", "-ic", "set -m; sleep 0 & wait; echo done") as screen:
        assert screen.end() == 0
        assert b"job control" not in screen.seen
        assert b"done\r\n" in screen.seen


def test_a_denial_is_told_below_the_output_of_a_terminal(own: Place) -> None:
    with Screen(own, "--", "sh", "-c", "echo x > ../outside/new") as screen:
        assert screen.end() == 2
        text = unwrapped(screen.seen.decode())
        assert f"the sandbox denies writing {own.outside}/new (claimed by the output)" in text
        assert f"to allow it: --allow-write {own.outside} seen:" in text


def test_sigterm_restores_the_terminal_and_ends_the_tree(own: Place) -> None:
    name = mark()
    with Screen(own, "--", "sh", "-c", f"setsid sleep {name} & echo up; exec sleep {name}") as screen:
        screen.until(b"up\r\n")
        screen.child.terminate()
        assert screen.end() == 143
        assert screen.settings() == screen.before
    assert gone(name)


def test_a_terminal_that_goes_away_ends_the_command(own: Place) -> None:
    name = mark()
    with Screen(own, "--", "sh", "-c", f"echo up; exec sleep {name}") as screen:
        screen.until(b"up\r\n")
        screen.hang_up()
        assert screen.child.wait(WAIT_S) == 129
    assert gone(name)
