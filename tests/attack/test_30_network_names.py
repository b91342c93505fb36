"""Attack 30: past the list of allowed hosts. What is not on it is not reached, whatever it is called.

Every attempt is made inside of one sandbox; whether one got anywhere is seen by the servers outside, which
are real: a virtual host beside the allowed one, and one that is on no list and listens at every address.
"""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support import identity
from tests.support.exec_command import WAIT_S, Place, place
from tests.support.patience import patient
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
