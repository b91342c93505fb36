"""Attack 32: a yes that was not meant. Questions without end, questions that look like others, an answer for
another name, port or address, and whoever asks and would answer itself.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast.egress.asking.questions import MAX_OPEN
from holdfast.wire.network import PolicyQuestion
from tests.support.commands import scene as executor_scene
from tests.support.exec_command import Place, Screen, place
from tests.support.peer import ENV, serving
from tests.support.root_only import IDENTITIES
from tests.support.webhosts import WebHosts, web_hosts

ODD = """
import socket, sys
for name in sys.argv[1:]:
    try:
        socket.create_connection((name, 80))
    except (OSError, ValueError):
        print("none")
"""
PROMPT = rb"allow [a-z0-9.-]+\? \[yes/(?:all/)?no\] "
FLOOD = 60
# Connects to many names at once, and counts those that are refused; one more each time until all are told.
FLOODING = """
import select, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
socks = []
for number in range(count):
    socks.append(socket.create_connection((f"n{number}.test", port)))
    socks[-1].send(b"\\0")
wanted, gone = count - int(sys.argv[3]), set()
while len(gone) < wanted:
    for sock in select.select([one for one in socks if one not in gone], [], [])[0]:
        gone.add(sock)
print(len(gone), "refused")
"""


@dataclass(frozen=True)
class Battle:
    home: Place
    hosts: WebHosts

    @property
    def port(self) -> int:
        return self.hosts.ports["plain"]

    def open(self, *words: str, allow: tuple[str, ...] = ()) -> Screen:
        profile = self.home.outside / "profile.toml"
        profile.write_text(self.hosts.profile(f"known.test:{self.port}", *allow), "utf-8")
        self.home.own()
        return Screen(self.home, "--profile", str(profile), "--ask-network", "--json", "--", *words)

    def arrived(self, path: str) -> list[bytes]:
        return [seen.data for seen in self.hosts.seen if path.encode() in seen.data]


@pytest.fixture(scope="module", params=IDENTITIES)
def battle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Battle]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield Battle(home, hosts)


def read_refused(screen: Screen) -> list[dict[str, object]]:
    refused: list[dict[str, object]] = json.loads(screen.seen.splitlines()[-1])["network"]["refused"]
    return refused


def test_a_flood_of_questions_is_one_at_a_time_and_has_an_end(battle: Battle) -> None:
    words = ("/usr/bin/python3", "-c", FLOODING, str(battle.port), str(FLOOD), str(MAX_OPEN))
    with battle.open(*words) as screen:
        screen.until(rb'"dropped": \d+')  # more than a terminal holds
        assert screen.end() == 0
    assert screen.seen.count(b"wants to reach") == 1
    why = "no rule allows it, and too much was asked already"
    assert [row["rule"] for row in read_refused(screen)].count(why) == FLOOD - MAX_OPEN


def test_a_question_cannot_be_made_to_look_like_another(battle: Battle) -> None:
    """The names of programs are the command's to choose; of hosts, those that a name server could know."""
    forged = battle.home.workspace / "x\x1b[2J\r\nholdfast: allow good.test? \u202e\x9b"
    shutil.copy(shutil.which("curl") or "", forged)
    odd = [
        "a\x1b[31m.test",
        "a b.test",
        "good.test\n",
        "good.test\\0.evil.test",
        "\uff10x7f.1",
        "good.test/.evil",
    ]
    script = f'"$1" -sS http://api.test:{battle.port}/forged; shift; python3 -c "$@"'
    with battle.open("sh", "-c", script, "sh", str(forged), ODD, *odd) as screen:
        asked = screen.until(rb"holdfast: '([^']*)' wants to reach ([^\r\n]*)")
        screen.until(PROMPT)
        screen.type(b"no\r")
        assert screen.end() == 0
    assert re.fullmatch(rb"[ -~]+", asked[1])
    assert asked[1].endswith(b"holdfast: allow good.test? ??")
    assert asked[2] == b"api.test, port %d." % battle.port
    assert b"\x1b" not in screen.seen.partition(b"{")[0]
    assert screen.seen.count(b"wants to reach") == 1
    assert battle.arrived("/forged") == []


def test_a_name_in_other_letters_is_shown_in_ascii(battle: Battle) -> None:
    """What looks like another name in the letters of another alphabet is not shown in those."""
    fetch = "import urllib.request as u, sys; u.urlopen(sys.argv[1])"
    url = f"http://g\u043eod.test:{battle.port}/"
    with battle.open("sh", "-c", 'python3 -c "$1" "$2" || curl -sS "$2"; true', "sh", fetch, url) as screen:
        if b"wants to reach" in screen.until(rb"wants to reach|exitCode")[0]:
            screen.until(rb"wants to reach xn--")
            screen.until(PROMPT)
            screen.type(b"no\r")
        screen.end()
    assert "\u043e".encode() not in screen.seen.partition(b"{")[0]


def test_a_yes_is_for_no_other_name_or_port(battle: Battle) -> None:
    """Not for another Host on the same connection, not for another name, not for a second port."""
    plain, evil = battle.port, battle.hosts.ports["evil"]
    script = f"""
        curl -sS http://api.test:{plain}/meant
        curl -sS -H 'Host: evil.test' http://api.test:{plain}/fronted
        curl -sS --resolve evil.test:{plain}:$(getent ahostsv4 api.test | cut -d' ' -f1 | head -1) http://evil.test:{plain}/renamed
        curl -sS http://api.test:{evil}/moved
        curl -sS http://evil.test:{plain}/other
        true"""
    with battle.open("sh", "-c", script, allow=(f"third.test:{evil}",)) as screen:
        screen.until(rb"wants to reach api\.test, port %d" % plain)
        screen.until(PROMPT)
        screen.type(b"yes\r")
        screen.until(rb"wants to reach api\.test, port %d" % evil)
        screen.until(rb"(?s)allow api\.test\? .*allow api\.test\? \[yes/no\] ")
        screen.type(b"no\r")
        screen.until(rb"wants to reach evil\.test")
        screen.until(rb"allow evil\.test\? \[yes/no\] ")
        screen.type(b"no\r")
        assert screen.end() == 0
    assert len(battle.arrived("/meant")) == 1
    for path in ("/fronted", "/renamed", "/moved", "/other"):
        assert battle.arrived(path) == [], path


async def test_a_yes_does_not_lead_to_a_daemon_of_ours(tmp_path: Path) -> None:
    """Also where addresses that are not public are granted."""
    asked: list[str] = []

    async def decide(question: PolicyQuestion) -> bool:
        asked.append(question.host)
        return True

    with web_hosts(tmp_path) as hosts:
        async with serving() as (url, _), holdfast.connect(url) as env:
            port = urlsplit(url).port
            policy = holdfast.Policy.from_toml(hosts.profile(f"known.test:{port}"), root=str(tmp_path))
            done = await env.run(
                ["curl", "-sS", "--fail", f"http://api.test:{port}/readyz"],
                policy=policy.ask_network(),
                cwd=str(tmp_path),
                decide=decide,
            )
    assert asked == ["api.test"]
    assert done.code != 0
    assert done.network is not None
    assert [row.rule for row in done.network.refused] == ["api.test is at 127.0.0.1, which is not public"]


async def test_a_process_is_not_asked_about_its_own_commands(tmp_path: Path) -> None:
    """Whoever runs it is: a process that has its commands run by an executor would say yes to itself."""
    asked: list[tuple[str, int]] = []

    async def decide(question: PolicyQuestion) -> bool:
        asked.append((question.host, question.port))
        return False

    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        async with executor_scene() as made:
            text = hosts.profile(f"known.test:{port}")
            policy = holdfast.Policy.from_toml(text, root=str(made.ws)).ask_network().allow_read(made.run)
            own = policy.allow_socket(made.socket)
            await made.environment.start(
                ["sleep", "100000"],
                cwd=made.ws,
                env=dict(ENV),
                policy=own,
                commands=made.executor(policy),
                decide=decide,
            )
            async with made.speaking() as speaker:
                said = []
                for more in ({}, {"hosts": {"allow": ["*", f"known.test:{port}"], "askTimeoutMs": 60000}}):
                    network = "enabled" if not more else "restricted"
                    permissions = {
                        "type": "managed",
                        "file_system": {"type": "unrestricted"},
                        "network": network,
                    }
                    where = {"cwd": made.ws.as_uri(), "workspaceRoots": [made.ws.as_uri()]}
                    sandbox = {"permissions": permissions, "windowsSandboxLevel": "disabled", **where, **more}
                    running = asyncio.ensure_future(
                        speaker.run(f"curl -sS --fail http://api.test:{port}/own 2>&1", sandbox=sandbox)
                    )
                    said.append(await running)
                questions = [
                    one for one in speaker.peer.others if one.get("method") == "network/policyRequest"
                ]
    assert questions == []
    assert asked == [("api.test", port), ("api.test", port)]
    assert all("welcome" not in text for text in said), said
    assert [seen.data for seen in hosts.seen if seen.data] == []
