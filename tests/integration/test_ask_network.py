"""`--ask-network`: a connection waits while somebody at the terminal is asked, and goes on with a yes."""

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.exec_command import Place, Screen, Shell, place
from tests.support.root_only import IDENTITIES
from tests.support.webhosts import WebHosts, web_hosts

PROMPT = rb"allow [a-z.]+\? \[yes/(?:all/)?no\] "


@dataclass(frozen=True)
class Scene:
    home: Place
    hosts: WebHosts

    @property
    def port(self) -> int:
        return self.hosts.ports["plain"]

    def flags(self, *, private: bool = True) -> list[str]:
        """Nothing but a host of another name is allowed, at the port that the hosts have."""
        profile = self.home.outside / "profile.toml"
        text = self.hosts.profile(f"known.test:{self.port}", private=private)
        profile.write_text(f'{text}"other.wild.test" = "127.0.0.1"\n', "utf-8")
        self.home.own()
        return ["--profile", str(profile), "--ask-network"]

    def open(self, script: str, *more: str) -> Screen:
        return Screen(self.home, *self.flags(), *more, "--", "sh", "-c", script)

    def url(self, name: str, path: str = "page") -> str:
        return f"http://{name}:{self.port}/{path}"


@pytest.fixture(scope="module", params=IDENTITIES)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield Scene(home, hosts)


def test_a_yes_lets_the_waiting_connection_and_later_ones_through(scene: Scene) -> None:
    """Several connections to one host are one question, and curl never sees a failure."""
    script = f"for i in 1 2 3; do curl -sS {scene.url('api.test')} & done; wait; echo all came back"
    with scene.open(script, "--json") as screen:
        screen.until(PROMPT)
        screen.type(b"yes\r")
        assert screen.end() == 0
        assert screen.settings() == screen.before
    assert screen.seen.count(b"welcome /page") == 3
    assert len(screen.seen.split(b"wants to reach api.test")) == 2
    network = json.loads(screen.seen.splitlines()[-1])["network"]
    assert network["refused"] == []
    assert [(row["host"], row["connections"]) for row in network["sent"]] == [("api.test", 3)]


def test_a_no_is_the_denial_that_it_would_have_been(scene: Scene) -> None:
    script = f"curl -sS -o answer {scene.url('api.test')} -w '%{{http_code}}\\n'; exit 1"
    with scene.open(script) as screen:
        screen.until(PROMPT)
        screen.type(b"no\r")
        assert screen.end() == 1
    shown = screen.seen.decode()
    assert "403" in shown
    assert f"the sandbox refused the host api.test:{scene.port}" in shown
    assert "rule: no rule allows it, and the answer was no" in shown
    assert f"to allow it: --allow-host api.test:{scene.port}" in shown


def test_a_pattern_is_for_the_names_beside_it(scene: Scene) -> None:
    first, second, third = map(scene.url, ("deep.wild.test", "other.wild.test", "api.test"))
    script = f"curl -sS {first} {second}; curl -sS {third}"
    with scene.open(script) as screen:
        screen.until(rb"all: \*\.wild\.test:\d+ too")
        screen.until(PROMPT)
        screen.type(b"all\r")
        screen.until(rb"(?s)welcome.*welcome.*allow api\.test\? \[yes/no\] ")
        screen.type(b"all\r")  # is not offered for this one, and so no answer
        screen.until(rb"(?s)allow api\.test\? .*allow api\.test\? ")
        screen.type(b"yes\r")
        assert screen.end() == 0
    assert screen.seen.count(b"welcome /page") == 3


def test_without_a_terminal_it_is_no(scene: Scene) -> None:
    """Nobody is asked, and nobody waits."""
    words = [*scene.flags(), "--json", "--", "curl", "-sS", "--fail", scene.url("api.test")]
    done = scene.home.call(["setsid", "--wait", *scene.home.argv(*words)])
    assert done.code != 0
    network = json.loads(done.err.splitlines()[-1])["network"]
    (refused,) = network["refused"]
    assert refused["rule"] == "no rule allows it, and there was nobody to ask"
    assert (refused["host"], network["sent"]) == ("api.test", [])


def test_what_the_command_writes_and_reads_waits_for_the_answer(scene: Scene) -> None:
    """Keys that were typed for the command before the question are no answer to it, nor is the next line."""
    script = (
        f"curl -sS {scene.url('api.test')} & "
        "for i in 1 2 3 4 5 6 7 8 9; do echo tick $i; done; wait; echo 'a line?'; read line; echo got $line"
    )
    with scene.open(script) as screen:
        screen.until(PROMPT)
        before = len(screen.seen)
        screen.type(b"whatever\r")
        screen.until(rb"(?s)whatever.*" + PROMPT)
        assert b"tick" not in screen.seen[before:]
        screen.type(b"yes\r")
        screen.until(rb"a line\?")
        screen.type(b"yes\r")
        screen.until(rb"got yes")
        assert screen.end() == 0
        assert screen.settings() == screen.before
    assert b"welcome /page" in screen.seen


def test_a_question_survives_a_stop(scene: Scene) -> None:
    """Control-Z at the question stops the job; in the foreground again the question can be answered."""
    words = scene.home.command(*scene.flags(), "--", "curl", "-sS", scene.url("api.test"))
    with Shell(scene.home) as shell:
        shell.run(shlex.join(words), until=PROMPT)
        shell.press(b"\x1a")
        assert "Stopped" in shell.run("jobs")
        shell.run("fg", until=b"curl")
        shell.press(b"yes\n", until=b"welcome /page")
        shell.until(Shell.PROMPT)


def test_a_terminal_is_asked_although_the_command_has_pipes(scene: Scene) -> None:
    """Its output goes to a file; what is typed for us does not reach it."""
    words = scene.home.command(*scene.flags(), "--", "sh", "-c", f"curl -sS {scene.url('api.test')}; cat")
    line = f"{shlex.join(words)} > {scene.home.workspace}/out"
    with Shell(scene.home) as shell:
        shell.run(line, until=PROMPT)
        shell.type(b"yes\n")
        shell.type(b"for the command\n\x04")
        shell.until(Shell.PROMPT)
    assert (scene.home.workspace / "out").read_text().splitlines() == ["welcome /page", "for the command"]


def test_control_c_ends_the_command_and_the_question(scene: Scene) -> None:
    with scene.open(f"trap 'echo caught; exit 3' INT; curl -sS {scene.url('api.test')}; exit 4") as screen:
        screen.until(PROMPT)
        screen.type(b"\x03")
        assert screen.end() in (3, 130)
        assert screen.settings() == screen.before


def test_an_address_that_is_not_public_needs_more_than_a_yes(scene: Scene) -> None:
    words = ["--", "sh", "-c", f"curl -sS --fail {scene.url('api.test')}"]
    with Screen(scene.home, *scene.flags(private=False), *words) as screen:
        screen.until(PROMPT)
        screen.type(b"yes\r")
        assert screen.end() != 0
    assert b"api.test is at 127.0.0.1, which is not public" in screen.seen
    assert b"to allow it: --allow-private" in screen.seen


@pytest.mark.skipif(os.geteuid() != 0, reason="one identity is enough")
def test_asking_and_an_open_network_exclude_each_other(scene: Scene) -> None:
    done = scene.home.run("--network", "on", "--ask-network", "--", "true")
    assert (done.code, "--ask-network says what is left of the network" in done.err) == (2, True)
