"""Attack 33: a rule about requests. Whatever is said to the host, it hears of what is allowed and no more.

Every attempt is made inside of one sandbox, of `holdfast exec` here and by a server, in plain HTTP and inside
of TLS, as root and as a user. Whether one got through is seen in what reached the hosts.
"""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from holdfast import light
from holdfast.client.policy import Policy
from tests.attack.test_20_commands import context, special
from tests.attack.test_31_keys import FIELDS, serving
from tests.support.commands import scene
from tests.support.exec_command import Place, place
from tests.support.patience import patient
from tests.support.webhosts import Seen, WebHosts, web_hosts

SCRIPT: Final = Path(__file__).with_name("requests_attempts.py")


@dataclass(frozen=True)
class Battle:
    told: dict[str, str]
    seen: list[Seen]
    refused: list[str]


@pytest.fixture(scope="module", params=FIELDS)
def battle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Battle]:
    uid, way = request.param
    with place(uid) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield fight(home, hosts, way)


def fight(home: Place, hosts: WebHosts, way: str) -> Battle:
    for name, content in (("authority.pem", hosts.authority), ("attempts.py", SCRIPT)):
        (home.outside / name).write_bytes(content.read_bytes())
    profile = home.outside / "profile.toml"
    plain, tls = hosts.ports["plain"], hosts.ports["tls"]
    profile.write_text(hosts.profile(f"**.test:{plain}", f"*.test:{tls}"), "utf-8")
    home.own()
    scene = {"plain": plain, "tls": tls, "wait": patient(10)}
    authority = str(home.outside / "authority.pem")
    words = ["--json", "--profile", str(profile), "--allow-host", f"GET http://api.test:{plain}/v1/"]
    words += ["--allow-host", f"GET https://tls.test:{tls}/v1/"]
    argv = ["--", "/usr/bin/python3", str(home.outside / "attempts.py"), json.dumps(scene)]
    words += ["--backend", "bwrap"] if way == "bwrap" else []
    with contextlib.ExitStack() as stack:
        if way == "server":
            url, _ = stack.enter_context(serving(home, authority))
            words += ["--env", url, "--cwd", str(home.workspace)]
        done = home.run(*words, *argv, env={"SSL_CERT_FILE": authority})
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


async def test_the_commands_of_a_process_ask_no_more_than_its_rules_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is run by an executor under the ceiling of its process, with whatever policy it asks for."""
    with web_hosts(tmp_path) as hosts:
        monkeypatch.setenv("SSL_CERT_FILE", str(hosts.authority))
        base = f"https://tls.test:{hosts.ports['tls']}"
        rule, addresses = f"GET {base}/v1/", (("tls.test", "127.0.0.1"),)
        curl = f"curl -sS -m {patient(20):.0f} -w '%{{http_code}} '"
        script = f"{curl} {base}/v1/fine; {curl} {base}/admin; {curl} -X DELETE {base}/v1/x; "
        script += "ls $SSL_CERT_FILE; echo x 2>&1 >> $SSL_CERT_FILE || echo kept"
        async with scene() as room:
            own = room.own.with_network(False).allow_host(rule).allow_host(f"*.test:{hosts.ports['tls']}")
            wish = light.replace(own.wish.hosts, addresses=addresses, private=True)
            room.own = replace(own, wish=light.replace(own.wish, hosts=wish))
            ceiling = Policy.workspace_write(room.ws).deny(room.state).deny(room.run)
            ceiling = ceiling.deny(tempfile.gettempdir())  # as workers on a board have it
            await room.begin(
                policy=replace(ceiling, wish=light.replace(ceiling.wish, hosts=wish)).allow_write(room.tmp)
            )
            files = {"type": "restricted", "entries": [special("root", "read")]}
            whole = {"type": "managed", "file_system": files, "network": "enabled"}
            alone = context({**whole, "network": "restricted"}, room)
            alone["hosts"] = {"allow": [f"*.test:{hosts.ports['tls']}"]}
            async with room.speaking() as speaker:
                asked = await speaker.run(script, sandbox=context(whole, room))
                without = await speaker.run(script)
                pattern = await speaker.run(script, sandbox=alone)
        heard = {seen.data.split(b"\r\n")[0] for seen in hosts.seen if seen.data}
    for said in (asked, without):
        assert (said.count("welcome /v1/fine"), said.count("403 ")) == (1, 2), said
        assert ("ca-bundle.pem\n" in said, "kept\n" in said) == (True, True), said
    assert "Could not resolve host" in pattern
    assert heard == {b"GET /v1/fine HTTP/1.1"}
