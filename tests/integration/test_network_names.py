"""Hosts by name: real programs reach what is allowed without knowing of it, and nothing else.

The hosts are made up and on this machine's loopback; the profile says where they are.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast
from holdfast.sandbox.plan.select import Backend, Choice
from tests.support import proc
from tests.support.exec_command import Done, Place, place
from tests.support.patience import patient
from tests.support.peer import serving
from tests.support.root_only import IDENTITIES
from tests.support.rows import every_row
from tests.support.webhosts import WebHosts, web_hosts

BACKENDS = ["namespaces", "bwrap"]
ETC_BY_NAME = '":root" = "read"\n"/etc/hosts" = "read"\n"/etc/resolv.conf" = "write"'
WAIT = f"{patient(20):.0f}"
PYTHON = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2])
print(urllib.request.urlopen(sys.argv[1], context=context).read().decode())
"""
NODE = """
const [url, ca] = process.argv.slice(1), https = require('https');
https.get(url, {ca: require('fs').readFileSync(ca)}, r => r.pipe(process.stdout))
  .on('error', e => { console.error(e.message); process.exit(1); });
"""
# Each gets the URL and the file of the authority.
PROGRAMS = {
    "curl": ["curl", "-sS", "-m", WAIT, "{url}", "--cacert", "{ca}"],
    "wget": ["wget", "-q", "-T", WAIT, "-O", "-", "{url}", "--ca-certificate={ca}"],
    "python": ["/usr/bin/python3", "-c", PYTHON, "{url}", "{ca}"],
    "node": ["node", "-e", NODE, "{url}", "{ca}"],
    "openssl": [
        "sh",
        "-c",
        "printf 'GET /page HTTP/1.0\\r\\nHost: tls.test\\r\\n\\r\\n' | openssl s_client -quiet -ign_eof"
        " -verify_return_error -CAfile {ca} -servername tls.test -connect tls.test:{port}",
    ],
}


@dataclass(frozen=True)
class Town:
    home: Place
    hosts: WebHosts
    authority: str

    def allow(self, *rules: str, private: bool = True, where: str = "127.0.0.1") -> str:
        """A profile that allows these hosts."""
        profile = self.home.outside / "profile.toml"
        profile.write_text(self.hosts.profile(*rules, private=private, where=where), "utf-8")
        self.home.own()
        return str(profile)

    def run(self, name: str, *flags: str) -> Done:
        port = self.hosts.ports["tls"]
        known = {"url": f"https://tls.test:{port}/page", "ca": self.authority, "port": port}
        words = [
            word.format(**known) if "{" in word and "\n" not in word else word for word in PROGRAMS[name]
        ]
        return self.home.run(*flags, "--", *words)


@pytest.fixture(scope="module", params=IDENTITIES)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        authority = home.outside / "authority.pem"
        shutil.copy(hosts.authority, authority)
        home.own()
        yield Town(home, hosts, str(authority))


@every_row("name", PROGRAMS, ids=str)
def test_a_program_reaches_an_allowed_host_and_is_told_of_another(town: Town, name: str) -> None:
    if shutil.which(PROGRAMS[name][0]) is None:
        pytest.skip(f"{name} is not installed")
    rule = f"tls.test:{town.hosts.ports['tls']}"
    done = town.run(name, "--profile", town.allow(rule))
    assert (done.code, "welcome /page" in done.out) == (0, True), done
    missing = town.run(name, "--profile", town.allow("api.test"))
    assert missing.code != 0
    assert "holdfast: the sandbox refused the host tls.test" in missing.err, missing
    assert "to allow it: --allow-host tls.test" in missing.err
    assert "--network on" not in missing.err


def test_the_printed_grant_is_enough(town: Town) -> None:
    """First for the name, then, as its port is none of the usual ones, for that."""
    profile = town.allow("api.test")
    grants: list[str] = []
    for wanted in ("--allow-host tls.test", f"--allow-host tls.test:{town.hosts.ports['tls']}"):
        refused = town.run("curl", "--json", "--profile", profile, *grants)
        denial = json.loads(refused.err.splitlines()[-1])["denial"]
        assert (denial["kind"], denial["host"], denial["witnessed"]) == ("network", "tls.test", True)
        assert denial["grant"] == wanted
        grants += wanted.split(" ")
    assert town.run("curl", "--profile", profile, *grants).code == 0


def test_what_went_out_is_told(town: Town) -> None:
    port = town.hosts.ports["plain"]
    profile = town.allow(f"api.test:{port}")
    done = town.home.sh(
        f"curl -sS http://api.test:{port}/bytes/100000 | wc -c", "--profile", profile, "--json"
    )
    assert done.out.strip() == "100000"
    ending = json.loads(done.err.splitlines()[-1])
    (row,) = ending["network"]["sent"]
    assert (row["host"], row["port"], row["connections"], row["failed"]) == ("api.test", port, 1, 0)
    assert 100_000 < row["bytesReceived"] < 101_000
    assert 0 < row["bytesSent"] < 1000
    assert row["firstMs"] <= row["lastMs"]
    assert any(text.startswith("by name:") for text in ending["enforcement"]["network"])
    assert any("(fronting)" in text for text in ending["enforcement"]["network"])
    told = town.home.sh(f"curl -sS http://api.test:{port}/x", "--profile", profile, "--report")
    assert f"holdfast: api.test:{port}: 1 connection, " in told.err
    quiet = town.home.sh("true", "--profile", profile, "--report")
    assert quiet.err.strip() == "holdfast: nothing went out"


def test_both_families_lead_to_the_host_and_a_pattern_to_each_name(town: Town) -> None:
    port = town.hosts.ports["plain"]
    profile = town.allow(f"api.test:{port}", f"**.wild.test:{port}")
    script = (
        f"for way in -4 -6; do curl -sS $way http://api.test:{port}/way; done; "
        f"curl -sS http://deep.wild.test:{port}/wild; getent hosts wild.test >/dev/null && echo apex"
    )
    done = town.home.sh(script, "--profile", profile)
    assert done.out.split() == ["welcome", "/way", "welcome", "/way", "welcome", "/wild", "apex"], done


def test_a_denied_host_stays_denied(town: Town) -> None:
    port = town.hosts.ports["plain"]
    profile = town.allow(f"api.test:{port}", f"**.wild.test:{port}")
    done = town.home.sh(
        f"curl -sS http://deep.wild.test:{port}/", "--profile", profile, "--deny-host", "deep.wild.test"
    )
    assert done.code != 0
    assert "rule: --deny-host deep.wild.test denies it" in done.err
    assert "to allow it" not in done.err


@every_row("backend", BACKENDS, ids=str)
def test_loopback_and_names_go_together(town: Town, backend: str) -> None:
    """A port of the host, an allowed host and a server of the command's own."""
    plain, evil = town.hosts.ports["plain"], town.hosts.ports["evil"]
    script = (
        f"curl -sS http://api.test:{plain}/name; curl -sS http://127.0.0.1:{evil}/port; "
        "python3 -m http.server 8765 --bind 0.0.0.0 >/dev/null 2>&1 & "
        "for i in $(seq 200); do curl -s http://localhost:8765/ >/dev/null && break; sleep 0.05; done; "
        "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8765/; kill $!"
    )
    profile = town.allow(f"api.test:{plain}")
    limits = ("--backend", backend, "--profile", profile, "--loopback-port", str(evil))
    done = town.home.sh(script, *limits)
    assert done.out.split() == ["welcome", "/name", "welcome", "/port", "200"], done


@every_row(
    ("flags", "words"),
    [
        (["--allow-host", "a b"], "is no rule about hosts"),
        (["--allow-host", "evil.com\x01"], "is no rule about hosts"),
        (["--allow-host", "api.test", "--network", "on"], "when it is off, not on"),
        (["--allow-private"], "are about hosts that --allow-host allows"),
        (["--net-limit", "5M"], "are about hosts that --allow-host allows"),
        (["--allow-host", "api.test", "--net-limit", "fast"], "--net-limit 'fast' is no limit"),
        (["--deny-host", "api.test"], "are about hosts that --allow-host allows"),
        (["--allow-host", "api.test", "--deny-host", "*"], "is no rule about hosts"),
    ],
)
def test_what_cannot_be_meant_is_refused(town: Town, flags: list[str], words: str) -> None:
    done = town.home.run(*flags, "--", "touch", "ran")
    assert (done.code, words in done.err) == (2, True), done
    assert not (town.home.workspace / "ran").exists()


def test_a_plan_names_the_hosts(town: Town) -> None:
    hosts = ("--allow-host", "api.test", "--deny-host", "x.api.test")
    told = town.home.run("--print-plan", *hosts)
    assert "the host api.test is reached by its name" in told.out
    assert "the host x.api.test is not reached" in told.out
    assert "is no rule about hosts" in town.home.run("--print-plan", "--allow-host", "a b").err


def test_a_backend_that_cannot_do_it_refuses(town: Town) -> None:
    done = town.home.run("--backend", "landlock", "--allow-host", "api.test", "--", "touch", "ran")
    assert done.code == 125, done
    assert "landlock cannot do hosts-by-name" in done.err
    assert "take another backend: namespaces or bwrap" in done.err
    assert not (town.home.workspace / "ran").exists()


@every_row("backend", BACKENDS, ids=str)
def test_without_a_view_of_the_files_too(town: Town, backend: str) -> None:
    """Full access to files, the network by name."""
    port = town.hosts.ports["plain"]
    done = town.home.sh(
        "cat /etc/resolv.conf; getent hosts api.test || echo none",
        *("--full-access", "--backend", backend),
        "--allow-host",
        f"x.test:{port}",
    )
    assert "nameserver 127.0.0.1" in done.out
    assert done.out.endswith("none\n")


@every_row("backend", BACKENDS, ids=str)
@every_row("shown", ['":minimal" = "read"', '":root" = "read"\n"/etc" = "write"', ETC_BY_NAME], ids=str)
def test_other_views_have_the_resolver_too(town: Town, backend: str, shown: str) -> None:
    port = town.hosts.ports["plain"]
    profile = town.home.outside / "minimal.toml"
    text = town.hosts.profile(f"api.test:{port}").replace('":root" = "read"', shown)
    profile.write_text(text, "utf-8")
    town.home.own()
    limits = ("--backend", backend, "--profile", str(profile))
    done = town.home.sh(f"curl -sS http://api.test:{port}/minimal", *limits)
    assert done.out == "welcome /minimal\n", done


async def test_the_broker_ends_with_whoever_started_the_command(town: Town) -> None:
    """Also with one that is killed: nothing is left that serves names."""
    profile = town.allow("api.test")
    script = "getent hosts api.test >&2; echo runs; sleep 1000"
    with town.home.start("--profile", profile, "--", "sh", "-c", script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"runs\n"
        around = proc.below(child.pid)
        assert len(around) >= 3  # the first process inside, the command, and who serves its names
        child.kill()
        child.wait()
        assert not await proc.gone(around, within_s=patient(10))


MANY = """
import socket, sys
port = int(sys.argv[1])
def dial(name):
    sock = socket.create_connection((name, port))
    sock.sendall(f"GET /many HTTP/1.0\\r\\nHost: {name}\\r\\n\\r\\n".encode())
    return sock
def read(sock):
    with sock, sock.makefile("rb") as file:
        return b"welcome /many" in file.read()
asked = sum(read(dial(f"h{number}.test")) for number in range(1000))
crowd = [socket.create_connection(("h0.test", port)) for _ in range(200)]
for sock in crowd:
    sock.sendall(b"GET /many HTTP/1.0\\r\\nHost: h0.test\\r\\n\\r\\n")
print(asked, sum(map(read, crowd)))
"""


@pytest.mark.deep
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thousand_names_and_two_hundred_connections_at_once(town: Town, backend: str) -> None:
    port = town.hosts.ports["plain"]
    profile = town.allow(*(f"h{number}.test:{port}" for number in range(1000)))
    limits = ("--backend", backend, "--profile", profile)
    done = town.home.run(*limits, "--", "/usr/bin/python3", "-c", MANY, str(port))
    assert done.out.split() == ["1000", "200"], done


# --- on a server


@pytest.mark.parametrize("backend", [Backend.NAMESPACES, Backend.BWRAP])
async def test_a_server_serves_names_too(tmp_path: Path, backend: Backend) -> None:
    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        policy = holdfast.Policy.from_toml(hosts.profile(f"api.test:{port}"), root=str(tmp_path))
        async with serving(choice=Choice(backend)) as (url, _), holdfast.connect(url) as env:
            words = ["curl", "-sS", f"http://api.test:{port}/bytes/70000", "-o", "/dev/null"]
            done = await env.run(words, policy=policy, cwd=str(tmp_path))
            assert done.code == 0, done
            assert done.network is not None
            (row,) = done.network.sent
            assert (row.host, row.port, row.connections) == ("api.test", port, 1)
            assert row.bytes_received > 70_000
            assert done.enforcement is not None
            assert (done.enforcement.backend, bool(done.enforcement.network)) == (backend, True)
            refused = await env.run(["curl", "-sS", "http://evil.test/"], policy=policy, cwd=str(tmp_path))
            assert refused.code != 0
            assert refused.sandbox_denied
            assert refused.denial is not None
            assert (refused.denial.host, refused.denial.grant) == ("evil.test", "--allow-host evil.test")
            assert refused.denial.witnessed
            wider = policy.allow_host(f"evil.test:{hosts.ports['evil']}")
            words = ["curl", "-sS", f"http://evil.test:{hosts.ports['evil']}/allowed"]
            assert (await env.run(words, policy=wider, cwd=str(tmp_path))).stdout == b"welcome /allowed\n"
            quiet = await env.run(["true"], policy=holdfast.Policy.read_only(), cwd=str(tmp_path))
            assert quiet.network is None


async def test_two_commands_of_a_server_have_names_of_their_own(tmp_path: Path) -> None:
    with web_hosts(tmp_path) as hosts:
        plain, evil = hosts.ports["plain"], hosts.ports["evil"]
        first = holdfast.Policy.from_toml(hosts.profile(f"api.test:{plain}"), root=str(tmp_path))
        second = holdfast.Policy.from_toml(hosts.profile(f"evil.test:{evil}"), root=str(tmp_path))
        async with serving() as (url, _), holdfast.connect(url) as env:
            script = f"curl -sS http://api.test:{plain}/one; echo asked; read line"
            process = await env.start(["sh", "-c", script], policy=first, cwd=str(tmp_path), stdin=True)
            async for event in process:
                if isinstance(event, holdfast.Output) and b"asked" in event.data:
                    break
            words = [
                "sh",
                "-c",
                f"curl -sS -m 5 http://198.18.1.0:{plain}/; curl -sS -m 5 http://api.test:{plain}/",
            ]
            done = await env.run(words, policy=second, cwd=str(tmp_path))
            assert done.stdout == b""
            await process.close_stdin()
            await process.wait()
        assert [seen.data for seen in hosts.seen if b"/one" not in seen.data and seen.data] == []


async def test_exec_elsewhere_tells_what_went_out(tmp_path: Path) -> None:
    with place(os.getuid()) as home, web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        profile = home.outside / "profile.toml"
        profile.write_text(hosts.profile(f"api.test:{port}"), "utf-8")
        async with serving() as (url, _):
            words = ("--env", url, "--profile", str(profile), "--json", "--cwd", str(home.workspace))
            far = ("curl", "-sS", f"http://api.test:{port}/far")
            done = await asyncio.to_thread(home.run, *words, "--", *far)
    assert done.out == "welcome /far\n", done
    ending = json.loads(done.err.splitlines()[-1])
    assert [row["host"] for row in ending["network"]["sent"]] == ["api.test"]
    assert ending["network"]["sent"][0]["bytesReceived"] > 10


async def test_a_context_whose_hosts_make_no_sense_is_refused(tmp_path: Path) -> None:
    good = holdfast.Policy.read_only().allow_host("api.test")
    with pytest.raises(holdfast.UsageError):
        good.allow_host("a b")
    with pytest.raises(holdfast.UsageError):
        holdfast.Policy.full_access().allow_host("api.test")
