"""Attack 30: past the list of allowed hosts. What is not on it is not reached, whatever it is called.

Every attempt is made inside of one sandbox; whether one got anywhere is seen by the servers outside, which
are real: a virtual host beside the allowed one, and one that is on no list and listens at every address.
"""

import ipaddress
import json
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast.egress import dial
from holdfast.egress.addresses import Address
from tests.support import identity
from tests.support.egress import PUBLIC, Names
from tests.support.exec_command import WAIT_S, Place, place
from tests.support.patience import patient
from tests.support.peer import serving
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row
from tests.support.webhosts import WebHosts, web_hosts

SCRIPT: Final = Path(__file__).with_name("names_attempts.py")
NAMES: Final = re.findall(r"^@attempt\ndef (\w+)", SCRIPT.read_text("utf-8"), re.MULTILINE)
ATTEMPTS: Final = [name.replace("_", "-") for name in NAMES]
CONTROLS: Final = ("control-plain", "control-tls", "control-loopback")
BACKENDS: Final = ("namespaces", "bwrap")  # Landlock alone refuses such a policy


@dataclass(frozen=True)
class Battle:
    """What the attempts said, and what the servers saw."""

    told: dict[str, str]
    hosts: WebHosts
    refused: dict[str, list[str]]  # host -> rules


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=IDENTITIES)
def battle(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Battle]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield fight(home, hosts, backend)


def fight(home: Place, hosts: WebHosts, backend: str) -> Battle:
    authority = home.outside / "authority.pem"
    authority.write_bytes(hosts.authority.read_bytes())
    script = home.outside / "attempts.py"
    script.write_bytes(SCRIPT.read_bytes())
    profile = home.outside / "profile.toml"
    profile.write_text(
        hosts.profile(f"api.test:{hosts.ports['plain']}", f"tls.test:{hosts.ports['tls']}"), "utf-8"
    )
    resolver = home.outside / "resolver"
    other = socket.create_server(("127.0.0.1", 0))
    with socket.socket(socket.AF_UNIX) as answering, other:
        answering.bind(str(resolver))
        answering.listen()
        home.own()
        resolver.chmod(0o777)
        scene = {
            **hosts.ports,
            "other": other.getsockname()[1],
            "address": own_address(),
            "authority": str(authority),
            "resolver": str(resolver),
        }
        limits = ("--json", "--backend", backend, "--profile", str(profile))
        with OtherCommand(home, hosts, scene["other"]):
            done = home.run(*limits, "--", "/usr/bin/python3", str(script), json.dumps(scene))
    assert done.code == 0, done.err
    ending = json.loads(done.err.splitlines()[-1])
    assert ending["enforcement"]["backend"] == backend
    refused: dict[str, list[str]] = {}
    for row in ending["network"]["refused"]:
        refused.setdefault(row["host"], []).append(row["rule"])
    return Battle(json.loads(done.out), hosts, refused)


class OtherCommand:
    """Another command, which may reach a host at another port, and has asked for it."""

    def __init__(self, home: Place, hosts: WebHosts, port: int) -> None:
        self._profile = home.outside / "other.toml"
        self._profile.write_text(hosts.profile(f"api.test:{port}"), "utf-8")
        home.own()
        self._home = home

    def __enter__(self) -> None:
        wait = "import socket, sys; socket.gethostbyname('api.test'); print(1, flush=True); sys.stdin.read()"
        args = ("--profile", str(self._profile), "--", "/usr/bin/python3", "-c", wait)
        self._child = subprocess.Popen(
            self._home.argv(*args),
            cwd=self._home.workspace,
            env=self._home.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == b"1\n"

    def __exit__(self, *_exc: object) -> None:
        self._child.communicate(timeout=WAIT_S)


def own_address() -> str:
    """An address of this machine that is not loopback, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(sock.getsockname()[0])


def test_there_are_enough_of_them() -> None:
    assert len(set(ATTEMPTS)) == len(ATTEMPTS) >= 40


@every_row("name", CONTROLS, ids=str)
def test_what_is_allowed_works(battle: Battle, name: str) -> None:
    assert "welcome" in battle.told[name], battle.told[name]


@every_row("name", ATTEMPTS, ids=str)
def test_no_attempt_gets_through(battle: Battle, name: str) -> None:
    assert "got through" not in battle.told[name]
    assert "welcome /" not in battle.told[name].replace("welcome /fine", ""), battle.told[name]


def test_no_server_saw_anything_but_what_is_allowed(battle: Battle) -> None:
    reached = [seen for seen in battle.hosts.seen if seen.data]
    assert {seen.server for seen in battle.hosts.seen} == {"plain", "tls"}
    hosts = {host for seen in reached for host in re.findall(rb"(?im)^host: *(\S+)", seen.data)}
    assert hosts == {b"api.test", b"tls.test"}
    marks = {seen.data.split(b" ")[1].decode() for seen in reached}
    assert marks <= {
        "/control-plain",
        "/control-tls",
        "/fine",
        f"/redirect/http://evil.test:{battle.hosts.ports['evil']}/redirect",
    }
    assert {seen.server_name for seen in battle.hosts.seen if seen.server == "tls" and seen.data} == {
        "tls.test"
    }
    assert not [seen for seen in battle.hosts.seen if seen.server_name == "evil.test"]


def test_what_was_refused_is_named(battle: Battle) -> None:
    assert battle.refused["evil.test"] == ["no rule allows it"]
    assert any("TLS hello names 'evil.test'" in rule for rule in battle.refused["tls.test"])
    assert any("(ECH)" in rule for rule in battle.refused["tls.test"])
    assert any("it names the host 'evil.test'" in rule for rule in battle.refused["api.test"])
    assert any("CONNECT" in rule for rule in battle.refused["api.test"])


@every_row(
    "where",
    [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.1.1",
        "::ffff:127.0.0.1",
        "0.0.0.0",  # noqa: S104 - an address to be refused
        "fd00::1",
    ],
    ids=str,
)
def test_a_name_that_leads_to_no_public_address_is_not_dialled(tmp_path: Path, where: str) -> None:
    """Only by its own user here: who dials is the same process for both."""
    with place(identity.USER) as home, web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        profile = home.outside / "profile.toml"
        profile.write_text(hosts.profile(f"api.test:{port}", private=False, where=where), "utf-8")
        home.own()
        done = home.sh(
            f"curl -sS -m {patient(5):.0f} http://api.test:{port}/private",
            "--profile",
            str(profile),
            "--json",
        )
        ending = json.loads(done.err.splitlines()[-1])
        assert [row["grant"] for row in ending["network"]["refused"]] == ["--allow-private"], done.err
        assert "not public" in ending["network"]["refused"][0]["rule"]
        assert not hosts.seen


def test_a_name_of_somebody_else_does_not_lead_to_a_denied_address(tmp_path: Path) -> None:
    """As one that its owner points to the metadata service, where private addresses are granted."""
    with place(identity.USER) as home, web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        profile = home.outside / "profile.toml"
        profile.write_text(hosts.profile(f"*.test:{port}", private=True), "utf-8")
        home.own()
        words = ("--profile", str(profile), "--deny-host", "127.0.0.1", "--json")
        done = home.sh(f"curl -sS -m {patient(5):.0f} http://api.test:{port}/denied", *words)
        [row] = json.loads(done.err.splitlines()[-1])["network"]["refused"]
        assert (row["rule"], row["grant"]) == (
            "api.test is at 127.0.0.1, which --deny-host 127.0.0.1 denies",
            None,
        )
        assert "which --deny-host 127.0.0.1 denies" in done.out
        assert not hosts.seen


async def fetch_twice(tmp_path: Path, hosts: WebHosts) -> tuple[list[str], list[str]]:
    """What a command on a server got from api.test, and the rules by which it was refused."""
    rule = f"api.test:{hosts.ports['plain']}"
    fetch = f"curl -sS -m {patient(5):.0f} --fail http://{rule}"
    policy = holdfast.Policy.workspace_write(str(tmp_path)).allow_host(rule)
    async with serving() as (server, _), holdfast.connect(server) as env:
        script = f"{fetch}/first; {fetch}/second"
        done = await env.run(["sh", "-c", script], policy=policy, cwd=str(tmp_path))
    assert done.network is not None
    return done.stdout.decode().splitlines(), [row.rule for row in done.network.refused]


async def test_a_name_that_becomes_loopback_at_the_second_look_up_is_refused_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a name server says later, what is dialled is the address that was looked at."""
    names, dialled = Names([PUBLIC], ["127.0.0.1"]), []
    connect = dial.connect

    async def connect_here(addresses: Sequence[Address], port: int) -> socket.socket:
        dialled.append([str(address) for address in addresses])
        return await connect([ipaddress.ip_address("127.0.0.1")], port)

    monkeypatch.setattr(dial, "look_up", names)
    monkeypatch.setattr(dial, "connect", connect_here)
    with web_hosts(tmp_path) as hosts:
        got, refused = await fetch_twice(tmp_path, hosts)
    assert got[0] == "welcome /first"
    assert "welcome /second" not in got
    assert (dialled, names.asked) == ([[PUBLIC]], ["api.test.", "api.test."])
    assert refused == ["api.test is at 127.0.0.1, which is not public"]


@every_row("where", ["127.0.0.1", "10.1.2.3", "169.254.169.254"], ids=str)
async def test_a_name_that_is_another_name_of_a_private_address_is_not_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The resolver follows a CNAME, and says what that leads to."""
    resolve = socket.getaddrinfo

    def follow(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "api.test.":
            return resolve(host, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "inside.test", (where, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", follow)
    with web_hosts(tmp_path) as hosts:
        got, refused = await fetch_twice(tmp_path, hosts)
        assert not hosts.seen
    assert [line for line in got if "welcome" in line] == []
    assert refused == [f"api.test is at {where}, which is not public"]
