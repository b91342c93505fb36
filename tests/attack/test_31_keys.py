"""Attack 31: a key that stays outside. The command never has it, and it goes to its host alone.

Every attempt is made inside of one sandbox, whose host says back whatever it is asked to: of `holdfast exec`
here, and by a server. Whether the key got anywhere is seen in what the attempts were told, in what reached
the hosts, and of the server in its log, its arguments and its environment.
"""

import base64
import contextlib
import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.exec_command import Place, place
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row
from tests.support.webhosts import Seen, WebHosts, web_hosts

SCRIPT: Final = Path(__file__).with_name("keys_attempts.py")
FOUND: Final = re.findall(r"^@attempt\ndef (\w+)", SCRIPT.read_text("utf-8"), re.MULTILINE)
ATTEMPTS: Final = [name.replace("_", "-") for name in FOUND]
CONTROLS: Final = ("control-bearer", "control-basic", "control-kept-open", "control-body", "control-other")
REAL: Final = "sk-proj-zQ8vT3kLmN5pR7wXyB2c"
IN_FILE: Final = "glpat-hJ6dF9sA1qW4eR8tYu3i"


@dataclass(frozen=True)
class Battle:
    told: dict[str, str]
    seen: list[Seen]
    refused: list[str]
    output: str  # all that was said outside


DEEP: Final = (("root", "server"), ("root", "bwrap"), ("user", "bwrap"))
FIELDS: Final = [
    pytest.param(
        (identity.values[0], way),
        id=f"{identity.id}-{way}",
        marks=[*identity.marks, *([pytest.mark.deep] if (identity.id, way) in DEEP else [])],
    )
    for identity, way in itertools.product(IDENTITIES, ("exec", "server", "bwrap"))
]


@pytest.fixture(scope="module", params=FIELDS)
def battle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Battle]:
    uid, way = request.param
    with place(uid) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield fight(home, hosts, way)


@contextlib.contextmanager
def serving(home: Place, authority: str) -> Iterator[tuple[str, list[str]]]:
    """A server of this user: its address, and what else it says and shows; complete once it has ended."""
    argv = [home.python, "-m", "holdfast", "serve", "--listen", f"unix://{home.outside}/server"]
    with subprocess.Popen(
        home.as_user(argv),
        cwd=home.outside,
        env={**home.env(), "SSL_CERT_FILE": authority, "HOLDFAST_LOG": "debug"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        told: list[str] = []
        yield server.stdout.readline().strip(), told
        told += [show_processes(f"{home.outside}/server")]
        server.terminate()
        told += [*server.communicate()]


def show_processes(word: str) -> str:
    """Arguments and environment of every process with this word in one of them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            found += [text.decode("latin-1")] if word.encode() in text or b"keysprocess" in text else []
    return "\n".join(found)


def fight(home: Place, hosts: WebHosts, way: str) -> Battle:
    for name, content in (("authority.pem", hosts.authority), ("attempts.py", SCRIPT)):
        (home.outside / name).write_bytes(content.read_bytes())
    (home.outside / "key").write_text(f"{IN_FILE}\n", "utf-8")
    plain, tls = hosts.ports["plain"], hosts.ports["tls"]
    profile = home.outside / "profile.toml"
    profile.write_text(hosts.profile(f"api.test:{plain}", f"evil.test:{tls}"), "utf-8")
    home.own()
    authority = str(home.outside / "authority.pem")
    scene = {**hosts.ports, "authority": authority, "file": str(home.outside / "key")}
    words = ["--json", "--profile", str(profile), "--secret", f"API_KEY@tls.test:{tls}"]
    words += ["--secret", f"FILE_KEY=file:{home.outside / 'key'}@tls.test:{tls}"]
    words += ["--backend", "bwrap"] if way == "bwrap" else []
    command = ("--", "/usr/bin/python3", str(home.outside / "attempts.py"), json.dumps(scene))
    env = {"API_KEY": REAL, "ALSO": f"Bearer {REAL}", "SSL_CERT_FILE": authority}
    told: list[str] = []
    if way == "server":
        with serving(home, authority) as (url, told):
            done = home.run("--env", url, "--cwd", str(home.workspace), *words, *command, env=env)
    else:
        done = home.run(*words, *command, env=env)
    assert done.code == 0, (done.err, told)
    rows = json.loads(done.err.splitlines()[-1])["network"]["refused"]
    refused = [f"{row['host']} {row['rule']}" for row in rows]
    return Battle(json.loads(done.out), list(hosts.seen), refused, "\n".join((done.out, done.err, *told)))


def spellings(key: str) -> list[str]:
    """Most of it, backwards never; and what of it is the same in every base64."""
    encoded = [base64.b64encode(b"x" * start + key.encode())[4:-6].decode() for start in range(3)]
    return [key[:20], *encoded]


def test_there_are_enough_of_them() -> None:
    assert len(set(ATTEMPTS)) == len(ATTEMPTS) >= 35


@every_row("name", CONTROLS, ids=str)
def test_what_is_allowed_works(battle: Battle, name: str) -> None:
    assert "welcome /control" in battle.told[name], battle.told[name]


def test_the_key_arrives_where_it_is_meant_to(battle: Battle) -> None:
    """In both forms, and in every request of a connection."""
    sent = {seen.data.split(b" ")[1]: seen.data for seen in battle.seen if b" /control" in seen.data}
    bearer = f"Authorization: Bearer {REAL}".encode()
    assert all(bearer in sent[path] for path in (b"/control-bearer", b"/control-one", b"/control-two"))
    basic = re.search(rb"Basic (\S+)", sent[b"/control-basic"])
    assert basic is not None
    assert base64.b64decode(basic[1]) == f"me:{REAL}".encode()
    assert b"/control-other" in sent


@every_row("name", ATTEMPTS, ids=str)
def test_no_attempt_gets_it(battle: Battle, name: str) -> None:
    told = battle.told[name]
    assert not [key for key in (*spellings(REAL), *spellings(IN_FILE)) if key in told]
    assert "got through" not in told


@every_row("name", [name for name in ATTEMPTS if name.startswith("echo")], ids=str)
def test_the_host_was_asked_to_say_it_back(battle: Battle, name: str) -> None:
    """And had it: otherwise nothing is shown by that."""
    answered = "HTTP/1.1 502" if name == "echo-gzip" else "HTTP/1.1 200"
    assert answered in battle.told[name] or name == "echo-ranges", battle.told[name]
    path = f"/echo/{name.removeprefix('echo-')}".encode()
    had = [seen for seen in battle.seen if b" /echo/" in seen.data and REAL.encode() in seen.data]
    assert [seen for seen in had if path in seen.data] or name in (
        "echo-base64",
        "echo-ranges",
        "echo-own-text",
    )


def test_the_key_reaches_its_host_in_headers_alone(battle: Battle) -> None:
    for seen in battle.seen:
        if any(key.encode() in seen.data for key in spellings(REAL)):
            head, _, body = seen.data.partition(b"\r\n\r\n")
            line, _, headers = head.partition(b"\r\n")
            assert (seen.server, seen.server_name) == ("tls", "tls.test")
            assert re.findall(rb"(?im)^host: *(\S+)", headers) == [seen_host(battle)]
            assert REAL.encode() not in line + body
            assert headers.count(b"HTTP/1.1") == 0


def seen_host(battle: Battle) -> bytes:
    [host] = {
        bytes(re.findall(rb"(?im)^host: *(\S+)", seen.data)[0])
        for seen in battle.seen
        if seen.server_name == "tls.test" and seen.data
    }
    return host


def test_nothing_but_what_is_allowed_reached_a_server(battle: Battle) -> None:
    marks = {seen.data.split(b" ")[1].decode() for seen in battle.seen if seen.data}
    allowed = ("/control", "/echo", "/fine", "/redirect", "/steal")
    # The head of a request whose body is refused.
    cut_off = {"/body-stolen", "/chunks-stolen", "/plain-pieces"}
    assert not [mark for mark in marks - cut_off if not mark.startswith(allowed)]
    stolen = [seen for seen in battle.seen if b" /steal" in seen.data]
    assert len(stolen) >= 2  # with the placeholder, which opens nothing
    plain = [seen.data.partition(b"\r\n\r\n") for seen in battle.seen if b" /plain" in seen.data]
    assert not [head for head, _, body in plain if b" /plain-pieces " not in head or len(body) >= len(REAL)]


def test_what_was_refused_is_named(battle: Battle) -> None:
    for words in (
        "tls.test a request in it is refused: it has $API_KEY in its URL",
        "tls.test a request in it is refused: it has a key in its body",
        "tls.test a request in it is refused: it has $API_KEY in the name of a header",
        "tls.test a request in it is refused: it names the host 'evil.test'",
        "tls.test a request in it is refused: it asks for another protocol",
        "tls.test a request in it is refused: its target is not a path",
        "tls.test its TLS hello names 'evil.test'",
        "tls.test its TLS hello names no host",
        "tls.test it is not TLS, and keys and rules of this host are for nothing else",
        "api.test it has a key that is not for it",
    ):
        assert words in battle.refused, battle.refused


def test_nobody_outside_is_told_it(battle: Battle) -> None:
    """Neither by the JSON at the end nor by a warning."""
    assert not [key for key in (REAL, IN_FILE) if key in battle.output]
