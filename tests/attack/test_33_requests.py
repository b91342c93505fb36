"""Attack 33: a rule about requests. Whatever is said to the host, it hears of what is allowed and no more.

Every attempt is made inside of one sandbox, in plain HTTP and inside of TLS, as root and as a user. Whether
one got through is seen in what reached the servers.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.exec_command import Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES
from tests.support.webhosts import Seen, WebHosts, web_hosts

SCRIPT: Final = Path(__file__).with_name("requests_attempts.py")


@dataclass(frozen=True)
class Battle:
    told: dict[str, str]
    seen: list[Seen]
    refused: list[str]


@pytest.fixture(scope="module", params=IDENTITIES)
def battle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Battle]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield fight(home, hosts)


def fight(home: Place, hosts: WebHosts) -> Battle:
    for name, content in (("authority.pem", hosts.authority), ("attempts.py", SCRIPT)):
        (home.outside / name).write_bytes(content.read_bytes())
    profile = home.outside / "profile.toml"
    plain, tls = hosts.ports["plain"], hosts.ports["tls"]
    profile.write_text(hosts.profile(f"**.test:{plain}", f"*.test:{tls}"), "utf-8")
    home.own()
    scene = {"plain": plain, "tls": tls, "wait": patient(10)}
    done = home.run(
        *("--json", "--profile", str(profile), "--allow-host", f"GET http://api.test:{plain}/v1/"),
        *("--allow-host", f"GET https://tls.test:{tls}/v1/"),
        *("--", "/usr/bin/python3", str(home.outside / "attempts.py"), json.dumps(scene)),
        env={"SSL_CERT_FILE": str(home.outside / "authority.pem")},
    )
    assert done.code == 0, done.err
    rows = json.loads(done.err.splitlines()[-1])["network"]["refused"]
    return Battle(json.loads(done.out), list(hosts.seen), [f"{row['host']} {row['rule']}" for row in rows])


def test_what_is_allowed_works(battle: Battle) -> None:
    for server in ("plain", "tls"):
        assert "welcome /v1/control" in battle.told[f"{server} control"], battle.told


def test_there_are_enough_of_them(battle: Battle) -> None:
    assert len(battle.told) >= 60


def test_no_server_heard_of_anything_but_what_is_allowed(battle: Battle) -> None:
    heard = {seen.data.split(b"\r\n")[0] for seen in battle.seen if seen.data}
    assert heard == {b"GET /v1/control HTTP/1.1", b"GET /v1/fine HTTP/1.1"}, heard
    assert not [seen for seen in battle.seen if b"admin" in seen.data or b"evil" in seen.data]
    assert not [name for name, told in battle.told.items() if re.search(r"welcome [^\n]*admin", told)]


def test_what_was_refused_is_answered_and_told(battle: Battle) -> None:
    for name in ("method", "other-path", "encoded", "override"):
        for server in ("plain", "tls"):
            assert battle.told[f"{server} {name}"].startswith("HTTP/1.1 403 "), battle.told[
                f"{server} {name}"
            ]
    assert any("could be taken for another path" in rule for rule in battle.refused)
    assert any("no rule allows DELETE /v1/x" in rule for rule in battle.refused)
