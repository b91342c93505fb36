"""`holdfast exec --env`: the real command and our server, over each transport, on pipes and on a terminal."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import identity
from tests.support.exec_command import WAIT_S, Done, Place, Screen, Shell, gone, place, runs, stopped
from tests.support.tiers import DEEP


@dataclass
class Elsewhere:
    """A server whose directory is `there.workspace`, as seen from the directory of `here`."""

    here: Place
    there: Place
    where: str

    def run(self, *args: str, feed: bytes = b"") -> Done:
        return self.here.run("--env", self.where, *args, feed=feed)

    def sh(self, script: str, *flags: str) -> Done:
        return self.run(*flags, "--", "/bin/sh", "-c", script)

    @contextlib.contextmanager
    def start(self, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
        with self.here.start("--env", self.where, *args) as child:
            yield child


@contextlib.contextmanager
def served(listen: str, workspace: Path, env: dict[str, str]) -> Iterator[str]:
    argv = [sys.executable, "-m", "holdfast", "serve", "--no-hint", "--listen", listen]
    with subprocess.Popen(argv, cwd=workspace, env=env, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().decode().strip()
        finally:
            server.terminate()
            server.wait(WAIT_S)


@pytest.fixture(params=["ws", "unix", "named"])
def over_each(request: pytest.FixtureRequest) -> Iterator[Elsewhere]:
    """For what travels: bytes, signals, the terminal."""
    with reached_by(request.param) as made:
        yield made


@pytest.fixture(params=["ws", pytest.param("unix", marks=DEEP), pytest.param("named", marks=DEEP)])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Elsewhere]:
    """For what the command itself does, whichever way it reaches the server."""
    with reached_by(request.param) as made:
        yield made


@contextlib.contextmanager
def reached_by(way: str) -> Iterator[Elsewhere]:
    with place(identity.SELF) as here, place(identity.SELF) as there, contextlib.ExitStack() as stack:
        if way == "named":
            folder = here.top / ".holdfast"
            folder.mkdir()
            entry = {
                "program": sys.executable,
                "args": ["-m", "holdfast", "serve", "--listen", "stdio"],
                "cwd": str(there.workspace),
            }
            lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
            text = "\n".join(["[[environments]]", "id = 'box'", *lines])
            (folder / "environments.toml").write_text(text, "utf-8")
            yield Elsewhere(here, there, "box")
            return
        listen = "ws://127.0.0.1:0" if way == "ws" else f"unix://{there.top}/socket"
        yield Elsewhere(here, there, stack.enter_context(served(listen, there.workspace, there.env())))


def test_output_exit_code_and_directory_are_the_commands_own(over_each: Elsewhere) -> None:
    done = over_each.sh("echo out; echo err >&2; pwd; exit 7")
    assert (done.code, done.out, done.err) == (7, f"out\n{over_each.there.workspace}\n", "err\n")
    assert over_each.sh("kill -TERM $$").code == 143


def test_standard_input_is_passed_on_and_ends(over_each: Elsewhere) -> None:
    data = os.urandom(300_000).hex().encode()
    assert over_each.run("--", "cat", feed=data).out.encode() == data
    assert over_each.run("--", "true", feed=data).code == 0


def test_output_is_shown_when_it_is_written(elsewhere: Elsewhere) -> None:
    with elsewhere.start("--", "/bin/sh", "-c", "echo first; read x; echo $x") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"first\n"
        child.stdin.write(b"second\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"second\n"


def test_a_denial_is_told_and_its_flag_allows_exactly_that(elsewhere: Elsewhere) -> None:
    script = f"echo x > {elsewhere.there.outside}/new"
    done = elsewhere.sh(script)
    assert done.code == 2
    assert (
        f"holdfast: the sandbox denies writing {elsewhere.there.outside}/new (claimed by the output)"
        in done.err
    )
    flag = re.search(r"to allow it: (\S+) (\S+)\n", done.err)
    assert flag is not None
    assert elsewhere.sh(script, *flag.groups()).code == 0
    assert (elsewhere.there.outside / "new").exists()


def test_paths_are_those_of_the_other_machine(elsewhere: Elsewhere) -> None:
    (elsewhere.there.workspace / "sub").mkdir()
    (elsewhere.there.workspace / "sub" / "secret").write_text("hidden", "utf-8")
    write = "echo x > ../../outside/x; echo x > in; cat secret"
    done = elsewhere.sh(write, "--cwd", "sub", "--allow-write", "../../outside", "--deny", "secret")
    assert "hidden" not in done.out
    assert (elsewhere.there.outside / "x").exists()
    assert (elsewhere.there.workspace / "sub" / "in").exists()
    done = elsewhere.sh("cat *; echo x > y", "--cwd", str(elsewhere.there.workspace / "sub"), "--read-only")
    assert "hidden" in done.out
    assert not (elsewhere.there.workspace / "sub" / "y").exists()
    assert "hidden" not in elsewhere.sh("cat sub/secret", "--full-access", "--deny", "**/secret").out
    assert elsewhere.sh("echo x > ../outside/free", "--full-access").code == 0


def test_a_profile_is_a_file_of_this_machine_about_the_other_one(elsewhere: Elsewhere) -> None:
    text = "[filesystem]\n':root' = 'read'\n'~/outside' = 'write'\n'./closed' = 'deny'\n"
    (elsewhere.here.workspace / "profile.toml").write_text(text, "utf-8")
    home = elsewhere.here if elsewhere.where == "box" else elsewhere.there
    done = elsewhere.sh(f"echo x > in; echo x > {home.outside}/y", "--profile", "profile.toml")
    assert not (elsewhere.there.workspace / "in").exists()
    assert (home.outside / "y").exists(), done.err
    assert elsewhere.run("--profile", "none.toml", "--", "true").code == 2


def test_what_is_missing_is_told_as_a_shell_does(elsewhere: Elsewhere) -> None:
    (elsewhere.there.workspace / "plain").write_text("x", "utf-8")
    assert elsewhere.run("--", "no-such-command").code == 127
    assert elsewhere.run("--", "./plain").code == 126
    done = elsewhere.run("--cwd", "/no/such", "--", "true")
    assert done.code == 2
    assert "/no/such" in done.err


def test_how_it_ended_is_one_object(elsewhere: Elsewhere) -> None:
    done = elsewhere.sh(f"echo x > {elsewhere.there.outside}/new", "--json")
    told = json.loads(done.err.splitlines()[-1])
    assert told["exitCode"] == done.code == 2
    assert told["enforcement"]["backend"] == "namespaces"
    assert told["denial"]["path"] == f"{elsewhere.there.outside}/new"
    assert told["usage"]["peakRssBytes"] > 0
    assert told["error"] is None


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_us_is_for_the_command(elsewhere: Elsewhere, signum: int, code: int) -> None:
    with elsewhere.start("--", "/bin/sh", "-c", "echo up; exec sleep 600") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signum)
        assert child.wait(WAIT_S) == code


def test_a_command_may_answer_a_signal(elsewhere: Elsewhere) -> None:
    script = "trap 'exit 9' INT; echo up; while :; do sleep 0.1; done"
    with elsewhere.start("--", "/bin/sh", "-c", script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(WAIT_S) == 9


def test_a_reader_that_goes_away_ends_the_command(elsewhere: Elsewhere) -> None:
    mark = uuid.uuid4().hex
    with elsewhere.start("--", "yes", mark) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(WAIT_S) == 128 + signal.SIGPIPE
    assert gone(mark)


def test_output_that_cannot_be_written_is_told_and_no_success(elsewhere: Elsewhere) -> None:
    argv = ["sh", "-c", '"$@" >/dev/full', "sh", *elsewhere.here.argv("--env", elsewhere.where, "--", "yes")]
    done = elsewhere.here.call(argv)
    assert done.code == 74
    assert done.err == "holdfast: cannot write standard output: No space left on device\n"


def test_what_holds_the_outputs_open_is_not_waited_for(elsewhere: Elsewhere) -> None:
    done = elsewhere.sh("sleep 600 & echo started", "--full-access")
    assert (done.code, done.out) == (0, "started\n")


def test_a_terminal_there_for_a_terminal_here(over_each: Elsewhere) -> None:
    script = "read go; stty size; echo $TERM; trap 'stty size' WINCH; echo armed; while :; do sleep 0.1; done"
    with Screen(over_each.here, "--env", over_each.where, "--", "/bin/sh", "-c", script) as screen:
        screen.type(b"go\n")
        screen.until(rb"33 101\r\ndumb\r\narmed\r\n")
        screen.resize(44, 111)
        screen.until(rb"44 111\r\n")
        assert screen.settings() != screen.before
        screen.type(b"\x03")
        assert screen.end() == 130
        assert screen.settings() == screen.before


@pytest.mark.parametrize("flags", [[], ["--full-access"]], ids=["confined", "unconfined"])
def test_control_z_stops_a_command_on_pipes_over_there_with_us(
    elsewhere: Elsewhere, flags: list[str]
) -> None:
    name = f"9{uuid.uuid4().int % 10**8:08}"
    script = f"'echo up >&2; sleep {name}'"
    with Shell(elsewhere.here) as shell:
        words = elsewhere.here.command("--env", elsewhere.where, *flags, "--", "/bin/sh", "-c", script)
        shell.run(" ".join(words) + " > log", until=b"up\r?\n")
        assert runs("sleep", name)
        assert "Stopped" in shell.press(b"\x1a")
        assert stopped("sleep", name)
        shell.run("fg", until=b"> log\r\n")
        assert runs("sleep", name)
        shell.press(b"\x03")
        assert "exit 130\r\n" in shell.run("echo exit $?")
    assert gone(name)


def test_what_is_granted_and_missing_over_there_is_made(elsewhere: Elsewhere) -> None:
    """As on this machine: a directory, a file by its name, and nothing where the command can make it."""
    outside = elsewhere.there.outside
    flags = [word for name in (".state/tool", "a.txt") for word in ("--allow-write", f"../outside/{name}")]
    script = "echo x > ../outside/.state/tool/a && echo y > ../outside/a.txt; echo z > ../outside/b"
    done = elsewhere.sh(script, *flags, "--allow-write", "made")
    assert ((outside / ".state/tool/a").read_text(), (outside / "a.txt").read_text()) == ("x\n", "y\n")
    assert (done.code != 0, (outside / "b").exists()) == (True, False)
    assert not (elsewhere.there.workspace / "made").exists()
    refused = elsewhere.sh("true", "--allow-write", "../outside/no/a.txt")
    assert (refused.code, "cannot make it over there" in refused.err) == (2, True)


def test_options_about_this_machine_are_refused() -> None:
    with place(identity.SELF) as here:
        for flags in (["--explain", "/x"], ["--print-plan"], ["--backend", "bwrap"], ["--degraded"]):
            done = here.run("--env", "local", *flags, "--", "true")
            assert (done.code, done.out) == (2, "")
            assert flags[0] in done.err


def test_a_server_that_is_not_there_is_told_in_one_line_with_a_way_out() -> None:
    with place(identity.SELF) as here:
        done = here.run("--env", "ws://127.0.0.1:9", "--", "true")
        assert done.code == 125
        assert re.fullmatch(r"holdfast: .*\n  try: .*\n", done.err)
        done = here.run("--env", "nobody", "--", "true")
        assert done.code == 2
        assert "local" in done.err


def test_this_machine_is_an_environment_too() -> None:
    with place(identity.SELF) as here:
        assert here.run("--env", "local", "--", "pwd").out == f"{here.workspace}\n"
