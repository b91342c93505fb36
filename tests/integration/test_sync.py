"""The blocking facade: in a script, in a thread with a running loop, and under Ctrl-C."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from holdfast import sync
from holdfast.client.events.ordering import Closed, Exited, Output
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError, NotFound, OperationFailed, SessionLost, Unreachable, UsageError
from tests.support.httpd import httpd, reply
from tests.support.patience import patient

SERVER: Final = [sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]
WAIT_S: Final = patient(30.0)  # on a loaded machine, too
BUSY: Final = "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"

# Ctrl-C comes once the caller is known to wait for the command; it goes on and sees the command gone.
SCRIPT: Final = """
import os, signal, sys, threading, time, traceback
import holdfast.sync

pid, main = "pid", threading.get_ident()

def interrupt():
    waits = False
    while not (waits and os.path.exists(pid)):
        time.sleep(0.02)
        names = [frame.name for frame in traceback.extract_stack(sys._current_frames()[main])]
        waits = "waiting" in names and "result" in names
    signal.pthread_kill(main, signal.SIGINT)

with holdfast.sync.connect({server!r}) as env:
    command = ["/bin/sh", "-c", {busy!r}]
    {prepare}
    def waiting():
        {call}
    threading.Thread(target=interrupt).start()
    try:
        waiting()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    with open(pid) as file:
        gone = ["/bin/sh", "-c", "! kill -0 " + file.read()]
    while env.run(gone).code != 0:
        time.sleep(0.05)
    print("gone", flush=True)
"""


@pytest.fixture
def env() -> Iterator[sync.Environment]:
    with sync.connect(SERVER) as env:
        yield env
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast.sync"]


def test_a_command_runs_and_its_result_is_returned(env: sync.Environment) -> None:
    result = env.run(["/bin/sh", "-c", "cat; echo no >&2; exit 3"], input=b"hello")
    assert (result.code, result.stdout, result.stderr) == (3, b"hello", b"no\n")
    assert env.status() == "ready"
    assert env.info.shell.path
    with pytest.raises(TimeoutError):
        env.run(["sleep", "1000"], timeout_s=0.05)
    with pytest.raises(OperationFailed):
        env.run(["/no/such/program"])


def test_a_process_is_written_to_and_read_from(env: sync.Environment) -> None:
    process = env.start(["/bin/sh", "-c", "read a; echo got $a; cat; echo no >&2"], stdin=True)
    output = process.stdout
    process.write(b"one\n")
    assert next(output) == b"got one\n"
    process.write(b"two")
    process.close_stdin()
    assert b"".join(output) == b"two"
    assert b"".join(process.stderr) == b"no\n"
    events = list(process)
    assert [type(event) for event in events[-2:]] == [Exited, Closed]
    assert b"".join(e.data for e in events if isinstance(e, Output) and e.stream == "stderr") == b"no\n"
    assert process.wait().code == 0


def test_a_process_is_signalled_resized_and_ended(env: sync.Environment) -> None:
    script = "trap 'stty size; exit 4' USR1; echo up; while :; do sleep 0.05; done"
    process = env.start(["/bin/sh", "-c", script], tty=True)
    output = process.stdout
    assert b"up" in next(output)
    process.resize(30, 90)
    process.signal("SIGUSR1")
    result = process.wait()
    assert result.code == 4
    assert b"30 90" in result.stdout
    other = env.start(["sleep", "1000"], policy=Policy.read_only())
    assert (other.sandbox_type, other.enforcement is not None) == ("linuxSeccomp", True)
    other.terminate()
    assert other.wait().code != 0


def test_files_are_read_written_and_streamed(env: sync.Environment, tmp_path: Path) -> None:
    files = env.files
    files.make_directory(tmp_path / "d")
    files.write(tmp_path / "d" / "a", "text")
    assert files.read(tmp_path / "d" / "a") == b"text"
    assert files.read_text(tmp_path / "d" / "a") == "text"
    # A source that uses the environment which it feeds.
    files.write_blocks(tmp_path / "d" / "b", files.open_blocks(tmp_path / "d" / "a"))
    assert list(files.open_blocks(tmp_path / "d" / "b")) == [b"text"]
    assert next(files.open_blocks(tmp_path / "d" / "b")) == b"text"
    files.copy(tmp_path / "d" / "a", tmp_path / "d" / "c")
    assert [entry.file_name for entry in files.list(tmp_path / "d")] == ["a", "b", "c"]
    assert len(files.walk(tmp_path).entries) == 4
    files.remove(tmp_path / "d" / "c")
    assert (files.exists(tmp_path / "d" / "c"), files.stat(tmp_path / "d").is_directory) == (False, True)
    assert files.canonical(tmp_path / "d") == str((tmp_path / "d").resolve())
    with pytest.raises(NotFound):
        files.read(tmp_path / "none")
    with pytest.raises(UsageError):
        files.read("none")
    with pytest.raises(HoldfastError):
        files.write(tmp_path / "d" / "a", b"", policy=Policy.read_only())


def test_a_watch_is_waited_for(env: sync.Environment, tmp_path: Path) -> None:
    watch = env.files.watch(tmp_path / "a")
    with pytest.raises(TimeoutError):
        watch.changed(timeout_s=0.01)
    assert not watch.fired
    (tmp_path / "a").touch()
    watch.changed(timeout_s=WAIT_S)


async def test_it_blocks_a_thread_whose_loop_is_running_and_not_its_own(tmp_path: Path) -> None:
    """As in a notebook: the loop of the caller stands still meanwhile, and nothing else happens."""
    with sync.connect(SERVER) as env:
        assert env.run(["echo", "hi"]).stdout == b"hi\n"
    async with httpd({"/x": reply(200, b"body")}) as web:
        await asyncio.to_thread(_use_http, web.url("/x"))


def _use_http(url: str) -> None:
    with sync.connect(SERVER) as env:
        assert env.http.request("GET", url).body == b"body"
        with env.http.stream("GET", url) as response:
            assert (response.status, response.header("content-length")) == (200, "4")
            assert b"".join(response) == b"body"
        with env.http.stream("GET", url) as response:
            pass
        with pytest.raises(UsageError):
            next(iter(response))
        with pytest.raises(ZeroDivisionError), env.http.stream("GET", url):
            raise ZeroDivisionError
        with pytest.raises(UsageError), env.http.stream("GET", "no url"):
            raise AssertionError("there is no response")


def test_an_environment_is_closed_once_and_then_refuses(tmp_path: Path) -> None:
    env = sync.connect(SERVER)
    process = env.start(["sleep", "1000"])
    env.close()
    env.close()
    for use in (process.wait, env.status, lambda: env.files):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.remedy


def test_who_waits_while_another_thread_closes_is_told() -> None:
    env = sync.connect(SERVER)
    process = env.start(["/bin/sh", "-c", "echo up; exec sleep 1000"])
    output, ended = process.stdout, list[Exception]()

    def wait() -> None:
        try:
            for _ in output:
                begun.set()
        except HoldfastError as exc:
            ended.append(exc)

    begun = threading.Event()
    waiter = threading.Thread(target=wait)
    waiter.start()
    assert begun.wait(WAIT_S)
    env.close()
    waiter.join(WAIT_S)
    assert [type(error) for error in ended] in ([SessionLost], [UsageError])


def test_a_server_that_is_not_there_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(Unreachable):
        sync.connect(["/no/such/server"])
    assert threading.active_count() <= before  # one of an earlier test may end meanwhile


@pytest.mark.parametrize(
    ("prepare", "call"),
    [
        ("", "env.run(command)"),
        ("process = env.start(command)", "process.wait()"),
        ("process = env.start(command)", "list(process.stdout)"),
    ],
)
def test_control_c_ends_the_command_and_the_environment_goes_on(
    prepare: str, call: str, tmp_path: Path
) -> None:
    script = SCRIPT.format(busy=BUSY, server=SERVER, prepare=prepare, call=call)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE, text=True, timeout=4 * WAIT_S, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["interrupted", "gone"]
