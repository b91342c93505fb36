"""Keys that stay outside: real programs use a placeholder, and the host gets the key.

The host is made up and on this machine's loopback, with a certificate of the tests that the machine trusts by
SSL_CERT_FILE.
"""

import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.exec_command import Done, Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row
from tests.support.webhosts import WebHosts, web_hosts

WAIT = f"{patient(20):.0f}"
REAL = "sk-proj-kV9wX2yZ4aB6cD8eF1gH"
URLLIB = """
import os, sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
print(urllib.request.urlopen(asked).read().decode())
"""
HTTPX = """
import os, sys, httpx2
print(httpx2.get(sys.argv[1], headers={"x-api-key": os.environ["API_KEY"]}).text)
"""
NODE = """
const https = require('https');
https.get(process.argv[1], {headers: {authorization: 'Bearer ' + process.env.API_KEY}},
  r => r.pipe(process.stdout)).on('error', e => { console.error(e.message); process.exit(1); });
"""
# None of them is told of a certificate but by the variables.
PROGRAMS = {
    "curl": ["sh", "-c", f'curl -sS -m {WAIT} -H "Authorization: Bearer $API_KEY" "$0"', "{url}"],
    "git": ["sh", "-c", 'git -c http.extraHeader="X-Key: $API_KEY" ls-remote $0', "{url}"],
    "python": ["/usr/bin/python3", "-c", URLLIB, "{url}"],
    "httpx": ["{python}", "-c", HTTPX, "{url}"],
    "node": ["node", "-e", NODE, "{url}"],
}


@dataclass(frozen=True)
class Town:
    home: Place
    hosts: WebHosts

    def run(self, *words: str, taken: str = "API_KEY", env: dict[str, str] | None = None) -> Done:
        given = {"SSL_CERT_FILE": str(self.home.outside / "authority.pem"), "API_KEY": REAL}
        profile = str(self.home.outside / "profile.toml")
        flags = ("--profile", profile, "--json", "--secret", f"{taken}@tls.test:{self.hosts.ports['tls']}")
        return self.home.run(*flags, "--", *words, env=given | (env or {}))

    def url(self, path: str) -> str:
        return f"https://tls.test:{self.hosts.ports['tls']}{path}"


@pytest.fixture(scope="module", params=IDENTITIES)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        shutil.copy(hosts.authority, home.outside / "authority.pem")
        (home.outside / "profile.toml").write_text(hosts.profile(), "utf-8")
        home.own()
        yield Town(home, hosts)


@every_row("name", PROGRAMS, ids=str)
def test_a_program_uses_a_key_that_it_does_not_have(town: Town, name: str) -> None:
    if name in ("node", "git", "curl") and shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    path = f"/page-{name}"
    known = {"{url}": town.url(path), "{python}": town.home.python}
    words = [known.get(word, word) for word in PROGRAMS[name]]
    done = town.run(*words)
    seen = [one for one in town.hosts.seen if path.encode() in one.data]
    assert seen, done
    assert re.search(rf"(?:Bearer |[Kk]ey: ){REAL}".encode(), seen[-1].data), seen
    assert (done.code, "welcome" in done.out) == (0, True) or name == "git", done
    assert REAL not in done.out + done.err


def test_the_command_has_a_placeholder_and_trusts_one_file(town: Town) -> None:
    done = town.run(
        "sh", "-c", 'echo "$API_KEY $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS"; env', env={"COPY": REAL}
    )
    key, file, extra = done.out.splitlines()[0].split()
    assert key.startswith("sk-proj-")
    assert (len(key), file) == (len(REAL), extra)
    assert REAL not in done.out + done.err
    told = json.loads(done.err.splitlines()[-1])
    assert "COPY" in told["withheld"]["variables"]
    assert [text for text in told["enforcement"]["network"] if "placeholder for $API_KEY" in text]
    assert "holdfast: SSL_CERT_FILE inside: what they name outside" in done.err


def test_nothing_is_left_of_the_file(town: Town) -> None:
    done = town.run("sh", "-c", "echo $SSL_CERT_FILE; stat -c %F $SSL_CERT_FILE")
    file, kind = done.out.splitlines()
    assert kind == "regular file"
    assert not Path(file).parent.exists()


def test_nothing_is_left_of_the_file_if_exec_is_killed(town: Town) -> None:
    """Nor of the process that had the key: its parent had no moment to end it."""
    profile = str(town.home.outside / "profile.toml")
    (town.home.outside / "key").write_text(f"{REAL}\n", "utf-8")
    town.home.own()
    taken = f"K=file:{town.home.outside / 'key'}@tls.test:{town.hosts.ports['tls']}"
    words = ("sh", "-c", "echo $SSL_CERT_FILE; sleep 600")
    with town.home.start("--profile", profile, "--secret", taken, "--", *words) as running:
        assert running.stdout is not None
        file = Path(running.stdout.readline().decode().strip())
        assert file.exists()
        running.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + patient(20)
    while file.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not file.parent.exists()


def test_a_key_comes_from_a_file_or_a_program(town: Town) -> None:
    key = town.home.outside / "key"
    key.write_text(f"{REAL[::-1]}\n", "utf-8")
    town.home.own()
    call = f'curl -sS -m {WAIT} -H "X-Key: $K" {town.url("/from")}; cat {key}'
    for source in (f"K=file:{key}", f"K=cmd:cat {key}"):
        done = town.run("sh", "-c", call, taken=source)
        assert f"X-Key: {REAL[::-1]}".encode() in [one.data for one in town.hosts.seen if one.data][-1]
        assert ("welcome" in done.out, REAL[::-1] in done.out) == (True, "cmd:" in source), done


@every_row(
    ("words", "taken", "env", "why"),
    [
        (("true",), "MISSING", {}, "there is no such variable"),
        (("true",), "K=file:/nonexistent", {}, "cannot read its file"),
        (("true",), "K=cmd:false", {}, "false failed with 1"),
        (("true",), "API_KEY", {"API_KEY": "short"}, "cannot be kept outside"),
        (("echo", f"Bearer {REAL}"), "API_KEY", {}, "the command itself has the key of $API_KEY"),
    ],
    ids=str,
)
def test_what_cannot_be_kept_outside_is_not_run(
    town: Town, words: tuple[str, ...], taken: str, env: dict[str, str], why: str
) -> None:
    done = town.run(*words, taken=taken, env=env)
    assert (done.code, done.out) == (2, "")
    assert why in json.loads(done.err)["error"]["message"]
    assert REAL not in done.err


def test_a_host_that_the_machine_does_not_trust_gets_nothing(town: Town) -> None:
    call = f'curl -sS -m {WAIT} -H "X-Key: $API_KEY" {town.url("/untrusted")}'
    done = town.run("sh", "-c", call, env={"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"})
    assert "the host is not trusted" in done.out, done
    assert not [one for one in town.hosts.seen if b"/untrusted" in one.data]


def test_a_plan_takes_no_key(town: Town) -> None:
    """And says what is read."""
    flags = ("--secret", "K=cmd:touch ran@tls.test", "--print-plan", "--json")
    done = town.home.run(*flags)
    assert [text for text in json.loads(done.out)["enforcement"]["network"] if "tls.test:443" in text], done
    assert not (town.home.workspace / "ran").exists()


def test_a_profile_names_keys_too(town: Town) -> None:
    profile = town.home.outside / "keys.toml"
    target = f"tls.test:{town.hosts.ports['tls']}"
    profile.write_text(f'{town.hosts.profile()}[hosts.secrets]\nAPI_KEY = "{target}"\n', "utf-8")
    town.home.own()
    call = f'curl -sS -m {WAIT} -H "X-Key: $API_KEY" {town.url("/by-profile")}; echo $API_KEY'
    env = {"SSL_CERT_FILE": str(town.home.outside / "authority.pem"), "API_KEY": REAL}
    done = town.home.run("--profile", str(profile), "--", "sh", "-c", call, env=env)
    assert ("welcome" in done.out, REAL in done.out + done.err) == (True, False), done
    [seen] = [one for one in town.hosts.seen if b"/by-profile" in one.data]
    assert f"X-Key: {REAL}".encode() in seen.data


def test_full_access_keeps_nothing(town: Town) -> None:
    done = town.home.run("--full-access", "--secret", "API_KEY@tls.test", "--", "true", env={"API_KEY": REAL})
    assert (done.code, "--full-access lets read everything" in done.err) == (2, True)
