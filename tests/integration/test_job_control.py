"""Control-Z, `fg` and `bg` on `holdfast exec`, in the interactive shell of a person at a real terminal."""

import os
import shutil
import uuid
from collections.abc import Iterator

import pytest

from tests.support import identity
from tests.support.exec_command import Place, Screen, Shell, gone, place, runs, stopped

CONTROL_C, CONTROL_Z = b"\x03", b"\x1a"
WAYS = {
    "namespaces": [],
    "bwrap": ["--backend", "bwrap"],
    "landlock": ["--backend", "landlock"],
    "full-access": ["--full-access"],
}


@pytest.fixture
def own() -> Iterator[Place]:
    with place(identity.SELF) as made:
        yield made


def mark() -> str:
    return f"9{uuid.uuid4().int % 10**8:08}"


def command(own: Place, script: str, *flags: str) -> str:
    return " ".join([*own.command(*flags), "--", "sh", "-c", f"'{script}'"])


@pytest.mark.parametrize("way", WAYS)
def test_control_z_stops_the_command_and_us_and_fg_goes_on_with_both(own: Place, way: str) -> None:
    name = mark()
    script = f"sleep {name} & echo up; read x; echo got $x; kill $!; wait"
    with Shell(own) as shell:
        before = shell.run("stty -a")
        shell.run(command(own, script, *WAYS[way]), until=b"up\r\n")
        assert runs("sleep", name)
        assert "Stopped" in shell.press(CONTROL_Z)
        assert stopped("sleep", name)
        assert shell.run("stty -a") == before
        shell.run("fg", until=rb"wait'?\r\n")
        assert runs("sleep", name)
        shell.run("words", until=b"got words\r\n")
        shell.until(shell.PROMPT)
        assert "exit 0\r\n" in shell.run("echo exit $?")
        assert shell.run("stty -a") == before
    assert gone(name)


def test_zsh_gets_its_prompt_back_as_well(own: Place) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    with Shell(own, "zsh") as shell:
        shell.run(command(own, "echo up; read x; echo got $x"), until=b"up\r\n")
        assert "suspended" in shell.press(CONTROL_Z)
        shell.run("fg", until=b"continued")
        shell.run("words", until=b"got words\r\n")
        shell.until(shell.PROMPT)
        assert "exit 0\r\n" in shell.run("echo exit $?")


def test_a_command_on_pipes_is_stopped_with_us(own: Place) -> None:
    """As in `holdfast exec -- make > log`: the terminal is ours, and the command has none."""
    name = mark()
    with Shell(own) as shell:
        shell.run(command(own, f"echo up >&2; sleep {name}") + " > log", until=b"up\r\n")
        assert runs("sleep", name)
        assert "Stopped" in shell.press(CONTROL_Z)
        assert stopped("sleep", name)
        shell.run("bg")
        assert runs("sleep", name)
        shell.run("fg", until=b"> log\r\n")
        shell.press(CONTROL_C)
        assert "exit 130\r\n" in shell.run("echo exit $?")
    assert gone(name)


def test_in_the_background_it_goes_on_and_takes_no_key_from_the_shell(own: Place) -> None:
    go = own.workspace / "go"
    os.mkfifo(go)
    script = "echo up; read x < go; echo on; read x; echo got $x"
    with Shell(own) as shell:
        shell.run(command(own, script), until=b"up\r\n")
        shell.press(CONTROL_Z)
        assert "&" in shell.run("bg")
        go.write_text("on\n")  # waits for who reads
        shell.until(rb"on\r+\n")
        shell.type(b"read x\nmine\n")
        shell.until(b"mine\r\n(?s:.*)" + shell.PROMPT)
        assert "mine\r\n" in shell.run("echo $x")
        assert "Running" in shell.run("jobs")
        shell.run("fg", until=rb"got \$x'?\r\n")
        shell.run("words", until=b"got words\r\n")
        shell.until(shell.PROMPT)
        assert "exit 0\r\n" in shell.run("echo exit $?")


@pytest.mark.parametrize("stdout", ["", " > log"], ids=["terminal", "pipes"])
def test_started_in_the_background_it_is_not_stopped(own: Place, stdout: str) -> None:
    """Neither by making our terminal raw, nor by what somebody types for the shell."""
    name = mark()
    with Shell(own) as shell:
        shell.run(command(own, f"sleep {name}; :") + f"{stdout} &")
        assert runs("sleep", name)
        shell.type(b"read x\nmine\n")
        shell.until(b"mine\r\n(?s:.*)" + shell.PROMPT)
        assert "mine\r\n" in shell.run("echo $x")
        assert "Running" in shell.run("jobs")
        shell.run("kill %1; wait")
    assert gone(name)


def test_a_shell_inside_keeps_control_z_for_its_own_jobs(own: Place) -> None:
    name = mark()
    with Shell(own) as shell:
        shell.run(" ".join([*own.command(), "--", *Shell.INTERACTIVE["bash"]]))
        shell.run("x=inside")
        shell.run(f"sleep {name}", until=b"\r\n")
        assert runs("sleep", name)
        assert f"Stopped                 sleep {name}" in shell.press(CONTROL_Z)
        assert "it is inside\r\n" in shell.run("echo it is $x")
        assert "Stopped" in shell.run("suspend")
        assert "it is\r\n" in shell.run("echo it is $x")
        shell.run("fg")
        assert "it is inside\r\n" in shell.run("echo it is $x")
        shell.run("kill -9 $$")
        assert "exit 137\r\n" in shell.run("echo exit $?")
    assert gone(name)


def test_a_stopped_job_can_be_ended(own: Place) -> None:
    name = mark()
    with Shell(own) as shell:
        shell.run(command(own, f"echo up; exec sleep {name}"), until=b"up\r\n")
        assert "Stopped" in shell.press(CONTROL_Z)
        shell.run("kill %1; fg")
        assert "exit 143\r\n" in shell.run("echo exit $?")
    assert gone(name)


def test_where_nobody_could_continue_us_control_z_stops_nothing(own: Place) -> None:
    """We lead our session, as in a tmux window with one command: the kernel stops no such group."""
    with Screen(own, "--", "sh", "-c", "echo up; read x; echo got $x") as screen:
        screen.until(b"up\r\n")
        screen.type(CONTROL_Z)
        screen.until(rb"\^Z")
        screen.type(b"words\r")
        assert screen.end() == 0
        assert b"got words\r\n" in screen.seen
