"""`--ask-network`: a connection waits while somebody at the terminal is asked, and goes on with a yes."""

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from msgspec import UNSET

import holdfast
from holdfast.client.events.result import Result
from holdfast.client.networkfilter import Decide
from holdfast.wire.network import PolicyQuestion
from tests.support.exec_command import Place, Screen, Shell, place
from tests.support.peer import serving
from tests.support.root_only import IDENTITIES
from tests.support.tiers import DEEP
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


# What may be asked as whom is tried with the attacks; here one of them is enough in every run.
@pytest.fixture(
    scope="module", params=[IDENTITIES[1], pytest.param(0, id="root", marks=(*IDENTITIES[0].marks, DEEP))]
)
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
    assert refused["rule"] == "no rule allows it, and nobody could be asked"
    assert (refused["host"], network["sent"]) == ("api.test", [])
    assert refused["program"] == os.path.realpath(shutil.which("curl") or "")


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


def test_asking_and_an_open_network_exclude_each_other(scene: Scene) -> None:
    done = scene.home.run("--network", "on", "--ask-network", "--", "true")
    assert (done.code, "--ask-network says what is left of the network" in done.err) == (2, True)


# --- over the wire


class Decider:
    """Decides as it is told, and knows what it was asked."""

    def __init__(self, answer: bool | Literal["pattern"]) -> None:
        self.answer = answer
        self.asked: list[PolicyQuestion] = []

    async def decide(self, question: PolicyQuestion) -> bool | Literal["pattern"]:
        self.asked.append(question)
        return self.answer


def make_policy(hosts: WebHosts, folder: Path, *more: str) -> holdfast.Policy:
    port = hosts.ports["plain"]
    text = hosts.profile(f"known.test:{port}") + "".join(f'"{name}" = "127.0.0.1"\n' for name in more)
    return holdfast.Policy.from_toml(text, root=str(folder))


async def test_a_client_is_asked_about_hosts_by_name(tmp_path: Path) -> None:
    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        policy = make_policy(hosts, tmp_path, "other.wild.test")
        async with serving() as (url, _), holdfast.connect(url) as env:

            async def fetch(*names: str, decide: Decide | None, asks: bool = True) -> Result:
                urls = [f"http://{name}:{port}/far" for name in names]
                wish = policy.ask_network() if asks else policy
                words = ["curl", "-sS", "--fail-early", "--fail", *urls]
                return await env.run(words, policy=wish, cwd=str(tmp_path), decide=decide)

            yes = Decider(True)
            done = await fetch("api.test", "api.test", "known.test", decide=yes.decide)
            assert (done.code, done.stdout) == (0, b"welcome /far\n" * 3)
            assert [(asked.host, asked.port, asked.pattern) for asked in yes.asked] == [
                ("api.test", port, UNSET)
            ]
            every = Decider("pattern")
            done = await fetch("deep.wild.test", "other.wild.test", decide=every.decide)
            assert done.stdout == b"welcome /far\n" * 2
            assert [asked.pattern for asked in every.asked] == [f"*.wild.test:{port}"]
            no = Decider(False)
            done = await fetch("api.test", decide=no.decide)
            assert done.denial is not None
            assert (done.code, len(no.asked)) == (22, 1)
            grant = f"--allow-host api.test:{port}"
            assert (done.denial.host, done.denial.grant, done.denial.witnessed) == ("api.test", grant, True)
            nobody = await fetch("api.test", decide=None)
            assert nobody.denial is not None
            assert nobody.denial.grant == "--allow-host api.test"
            with pytest.raises(holdfast.UsageError, match="where the policy says so"):
                await fetch("api.test", decide=yes.decide, asks=False)


async def test_a_client_is_asked_about_a_host_at_a_port_that_no_rule_names(tmp_path: Path) -> None:
    """Nobody listens there before it is tried; the connection waits for that as well."""
    with web_hosts(tmp_path) as hosts:
        port, decider = hosts.ports["plain"], Decider(True)
        policy = holdfast.Policy.from_toml(hosts.profile("known.test"), root=str(tmp_path))
        async with serving() as (url, _), holdfast.connect(url) as env:
            done = await env.run(
                ["curl", "-sS", "--fail", f"http://api.test:{port}/far"],
                policy=policy.ask_network(),
                cwd=str(tmp_path),
                decide=decider.decide,
            )
    assert (done.code, done.stdout) == (0, b"welcome /far\n"), done
    assert [(asked.host, asked.port) for asked in decider.asked] == [("api.test", port)]


async def test_a_client_that_is_late_says_no(tmp_path: Path) -> None:
    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]

        async def wait(_question: PolicyQuestion) -> bool:
            await asyncio.Event().wait()
            return True

        async with serving() as (url, _), holdfast.connect(url) as env:
            done = await env.run(
                ["curl", "-sS", "--fail", f"http://api.test:{port}/far"],
                policy=make_policy(hosts, tmp_path).ask_network(0.2),
                cwd=str(tmp_path),
                decide=wait,
            )
            assert done.code == 22
            assert done.network is not None
            (row,) = done.network.refused
            assert row.rule == "no rule allows it, and nobody answered within 0.2 s"
        assert [seen for seen in hosts.seen if seen.data] == []


async def test_a_command_with_a_key_outside_is_asked_about_too(tmp_path: Path) -> None:
    """Its names are served by a process of its own, whose questions reach the client as well."""
    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        policy = make_policy(hosts, tmp_path).keep_secret(f"TOKEN@http://api.test:{port}", "k" * 40)
        decider = Decider(True)
        async with serving() as (url, _), holdfast.connect(url) as env:
            script = (
                f'curl -sS -H "Authorization: Bearer $TOKEN" http://api.test:{port}/own; '
                f"curl -sS http://evil.test:{port}/asked; curl -sS http://evil.test:{port}/again"
            )
            done = await env.run(
                ["sh", "-c", script],
                policy=policy.ask_network(),
                cwd=str(tmp_path),
                decide=decider.decide,
            )
    assert done.stdout == b"welcome /own\nwelcome /asked\nwelcome /again\n", done
    assert [(asked.host, asked.port) for asked in decider.asked] == [("evil.test", port)]
    assert any(b"Bearer " + b"k" * 40 in seen.data for seen in hosts.seen)


async def test_whoever_runs_a_command_elsewhere_is_asked_at_the_terminal(tmp_path: Path) -> None:
    with place(os.getuid()) as home, web_hosts(tmp_path) as hosts:
        here = Scene(home, hosts)
        async with serving() as (url, _):
            words = ["--env", url, *here.flags(), "--cwd", str(home.workspace), "--", "sh", "-c"]
            script = f"curl -sS {here.url('api.test')}; read line; echo got $line"
            with Screen(home, *words, script) as screen:
                await asyncio.to_thread(screen.until, PROMPT)
                screen.type(b"yes\r")
                await asyncio.to_thread(screen.until, rb"welcome /page")
                screen.type(b"for the command\r")
                await asyncio.to_thread(screen.until, rb"got for the command")
                assert await asyncio.to_thread(screen.end) == 0
                assert screen.settings() == screen.before


TRIES = """
import asyncio, json, socket, ssl, sys
plain, tls, evil = json.loads(sys.argv[1])
ask = b"GET /page HTTP/1.0\\r\\nHost: %s:%d\\r\\n\\r\\n"
def get(sock, port):
    sock.sendall(ask % (b"api.test", port))
    print(sock.makefile("rb").read().splitlines()[-1])
get(socket.create_connection(("api.test", plain)), plain)
async def wait_less():
    trust = ssl.create_default_context(cafile=sys.argv[2])
    reader, writer = await asyncio.open_connection("tls.test", tls, family=socket.AF_INET, ssl=trust)
    writer.write(ask % (b"tls.test", tls))
    print((await reader.read()).splitlines()[-1])
asyncio.run(wait_less())
mapped = socket.socket(socket.AF_INET6)
mapped.connect(("::ffff:" + socket.getaddrinfo("api.test", evil, socket.AF_INET)[0][4][0], evil))
get(mapped, evil)
"""


@pytest.mark.parametrize("backend", ["namespaces", pytest.param("bwrap", marks=DEEP)])
def test_a_host_is_asked_about_at_whatever_port_it_is_tried_at(scene: Scene, backend: str) -> None:
    """Nobody listens there before: a connection that waits, one that does not, one by an address of IPv6.

    With bubblewrap nobody tries a second time: the first is refused, and the grant is told.
    """
    outside, ports = scene.home.outside, [scene.hosts.ports[name] for name in ("plain", "tls", "evil")]
    (outside / "bare.toml").write_text(scene.hosts.profile("known.test"), "utf-8")
    (outside / "tries.py").write_text(TRIES, "utf-8")
    (outside / "authority.pem").write_bytes(scene.hosts.authority.read_bytes())
    scene.home.own()
    words = ["--profile", str(outside / "bare.toml"), "--ask-network", "--json", "--backend", backend, "--"]
    words += [
        "/usr/bin/python3",
        str(outside / "tries.py"),
        json.dumps(ports),
        str(outside / "authority.pem"),
    ]
    with Screen(scene.home, *words) as screen:
        for port in ports if backend == "namespaces" else ():
            screen.until(rb"wants to reach [a-z.]+, port %d" % port)
            screen.until(PROMPT)
            screen.type(b"yes\r")
            screen.until(rb"welcome /page")
            screen.seen = b""
        code = screen.end()
    refused = json.loads(screen.seen.splitlines()[-1])["network"]["refused"]
    if backend == "namespaces":
        assert (code, refused) == (0, [])
    else:
        assert [row["grant"] for row in refused] == [f"--allow-host api.test:{ports[0]}"]
