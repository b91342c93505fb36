"""Presets and limits of the network by name, with real programs as root and as a user.

The hosts are made up and on this machine's loopback; settings of clients in the home name them.
"""

import contextlib
import json
import shlex
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.exec_command import Done, Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES
from tests.support.webhosts import WebHosts, web_hosts

WAIT = f"{patient(20):.0f}"


@dataclass(frozen=True)
class Market:
    home: Place
    hosts: WebHosts

    def run(
        self,
        script: str,
        *flags: str,
        allow: tuple[str, ...] = (),
        more: str = "",
        env: dict[str, str] | None = None,
    ) -> Done:
        """A script under a profile that knows where the hosts are."""
        profile = self.home.outside / "profile.toml"
        text = self.hosts.profile(*allow).replace("[hosts.addresses]", f"{more}\n[hosts.addresses]")
        profile.write_text(text, "utf-8")
        self.home.own()
        return self.home.sh(script, "--profile", str(profile), *flags, env=env)

    def get(self, path: str, *, name: str = "api.test") -> str:
        return f"curl -sS -m {WAIT} http://{name}:{self.hosts.ports['plain']}/{path}"


@pytest.fixture(scope="module", params=IDENTITIES)
def market(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield Market(home, hosts)


def test_a_preset_allows_what_its_clients_settings_name_and_no_word_of_the_workspace(market: Market) -> None:
    plain = market.hosts.ports["plain"]
    (market.home.top / ".npmrc").write_text(f"registry=http://api.test:{plain}/npm/\n", "utf-8")
    (market.home.workspace / ".npmrc").write_text(f"registry=http://evil.test:{plain}/\n", "utf-8")
    (market.home.workspace / "pip.conf").write_text(
        f"[global]\nindex-url=http://evil.test:{plain}/\n", "utf-8"
    )
    done = market.run(market.get("npm/x"), "--allow-net", "npm", "--report")
    assert (done.code, done.out) == (0, "welcome /npm/x\n"), done
    told = f"holdfast: --allow-net npm: api.test:{plain}, from {market.home.top}/.npmrc"
    assert f"{told}; withheld from the command (--allow-read {market.home.top}/.npmrc)" in done.err
    by_profile = market.run(market.get("npm/x"), more='presets = ["npm"]')
    assert by_profile.out == "welcome /npm/x\n", by_profile
    for settings in (
        {"PIP_CONFIG_FILE": "pip.conf"},
        {"PIP_CONFIG_FILE": f"{market.home.workspace}/pip.conf"},
    ):
        evil = market.home.sh("getent hosts evil.test", "--allow-net", "pip", "--json", env=settings)
        assert evil.code != 0, evil
        assert "evil.test" not in str(json.loads(evil.err.splitlines()[-1]).get("enforcement"))


def test_settings_that_the_command_may_write_are_not_its_users_word(market: Market) -> None:
    folder = market.home.top / "shared"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text('[registries.a]\nindex = "sparse+https://evil.test/"\n', "utf-8")
    market.home.own()
    flags = ("--allow-net", "cargo", "--allow-write", str(folder))
    done = market.home.sh("true", *flags, env={"CARGO_HOME": str(folder)})
    assert (done.code, "nothing outside of the workspace says" in done.err) == (2, True), done
    assert "cargo fetch" in done.err
    control = market.home.sh("true", "--allow-net", "cargo", "--report", env={"CARGO_HOME": str(folder)})
    assert (control.code, "cargo: evil.test:443" in control.err) == (0, True), control


def test_an_unknown_preset_is_answered_with_a_list(market: Market) -> None:
    done = market.home.sh("true", "--allow-net", "pypi")
    assert (done.code, "one of pip, npm, cargo, go, apt, git, model" in done.err) == (2, True), done


def test_no_more_than_a_limit_passes_by_however_many_names_and_connections(market: Market) -> None:
    plain = market.hosts.ports["plain"]
    allow = (f"api.test:{plain}", f"**.wild.test:{plain}")
    script = "; ".join(
        f"{market.get('bytes/30000', name=name)} | wc -c"
        for name in ("api.test", "deep.wild.test", "api.test")
    )
    done = market.run(f"{script}; exit 3", "--json", "--net-limit", "70K", allow=allow)
    told = json.loads(done.err.splitlines()[-1])
    rows = told["network"]["sent"]
    assert sum(row["bytesSent"] + row["bytesReceived"] for row in rows) <= 70 * 1024
    assert done.out.split()[:2] == ["30000", "30000"]
    assert [row["rule"] for row in told["network"]["refused"]] == ["limit reached: --net-limit 70K"]
    script = f"{market.get('bytes/30000')} | wc -c; {market.get('x')}; exit 3"
    again = market.run(script, more='limits = ["20K"]', allow=allow)
    assert "refused this: limit reached: --net-limit 20K" in again.out, again
    assert "rule: limit reached: --net-limit 20K" in again.err


def test_a_rate_slows_all_connections_together_and_is_told(market: Market) -> None:
    """Three at once get no more than one would; nobody looks at a clock."""
    plain = market.hosts.ports["plain"]
    script = f"for i in 1 2 3; do {market.get('bytes/300000')} -o f$i & done; wait; cat f1 f2 f3 | wc -c"
    done = market.run(script, "--json", "--net-limit", "500K/s", allow=(f"api.test:{plain}",))
    (row,) = json.loads(done.err.splitlines()[-1])["network"]["sent"]
    assert done.out.split() == ["900000"]
    assert row["slowedMs"] > 300  # 900,000 bytes, of which a second's worth is free
    free = market.run(market.get("bytes/100000"), "--json", allow=(f"api.test:{plain}",))
    assert json.loads(free.err.splitlines()[-1])["network"]["sent"][0]["slowedMs"] == 0
    told = market.run(market.get("x"), "--report", "--net-limit", "100/s", allow=(f"api.test:{plain}",))
    assert "limit reached: slowed by" in told.err


@pytest.mark.parametrize("server", ["plain", "tls"])
def test_requests_that_no_rule_allows_are_answered_403_and_told_with_their_grant(
    market: Market, server: str
) -> None:
    """In plain HTTP and inside of TLS, on one connection after another; the printed grant is enough."""
    scheme, name = ("http", "api.test") if server == "plain" else ("https", "tls.test")
    base = f"{scheme}://{name}:{market.hosts.ports[server]}"
    authority = market.home.outside / "authority.pem"
    authority.write_bytes(market.hosts.authority.read_bytes())
    market.home.own()
    curl = f"curl -sS --path-as-is -m {WAIT} -w '%{{http_code}} '"
    script = (
        f"{curl} {base}/v1/a {base}/v1/../admin {base}/v1/b; {curl} -X DELETE {base}/v1/a; "
        f"{curl} {base}/v1/%2e%2e/admin; {curl} -H 'Host: evil.test' {base}/v1/a; exit 3"
    )
    flags = ["--json", "--allow-host", f"GET {base}/v1/"]
    market.hosts.seen.clear()
    run = {"SSL_CERT_FILE": str(authority)}
    done = market.run(script, *flags, env=run)
    assert (done.out.count("welcome /v1/"), done.out.count("403 ")) == (2, 4), done
    assert "holdfast: the sandbox refused this:" in done.out
    reached = {seen.data.split(b"\r\n")[0].rpartition(b" ")[0] for seen in market.hosts.seen if seen.data}
    assert reached == {b"GET /v1/a", b"GET /v1/b"}
    refused = json.loads(done.err.splitlines()[-1])["network"]["refused"]
    grants = [row["grant"] for row in refused if row["grant"]]
    assert grants == [f"--allow-host 'DELETE {base}/v1/a'"], refused
    more = shlex.split(grants[0])
    again = market.run(f"{curl} -X DELETE {base}/v1/a", *flags, *more, env=run)
    assert (again.code, "welcome /v1/a" in again.out) == (0, True), again


def test_a_limit_holds_where_requests_inside_of_tls_are_read(market: Market) -> None:
    authority = market.home.outside / "authority.pem"
    authority.write_bytes(market.hosts.authority.read_bytes())
    market.home.own()
    base = f"https://tls.test:{market.hosts.ports['tls']}"
    script = f"for i in 1 2 3; do curl -sS -m {WAIT} {base}/bytes/30000 | wc -c; done; exit 3"
    flags = ("--json", "--allow-host", f"GET {base}/bytes/", "--net-limit", "tls.test=70K")
    done = market.run(script, *flags, env={"SSL_CERT_FILE": str(authority)})
    told = json.loads(done.err.splitlines()[-1])["network"]
    assert done.out.split()[:2] == ["30000", "30000"], done
    assert int(done.out.split()[2]) < 30000
    assert [row["rule"] for row in told["refused"]] == ["limit reached: --net-limit tls.test=70K"]


def test_connections_go_through_the_hosts_own_proxy_and_never_by_one_of_the_command(market: Market) -> None:
    plain = market.hosts.ports["plain"]
    asked: list[str] = []
    with forwarding(("127.0.0.1", plain), asked) as port:
        own = {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "NO_PROXY": "api.test"}
        script = (
            "unset HTTPS_PROXY NO_PROXY; export ALL_PROXY=http://127.0.0.1:1 no_proxy='*'; "
            f"{market.get('far', name='far.test')}; {market.get('near')}"
        )
        allow = ("--allow-host", f"far.test:{plain}", "--allow-host", f"api.test:{plain}")
        done = market.run(script, *allow, env=own)
    assert done.out.split() == ["welcome", "/far", "welcome", "/near"], done
    assert asked == [f"CONNECT far.test:{plain} HTTP/1.1"]


@contextlib.contextmanager
def forwarding(target: tuple[str, int], asked: list[str]) -> Iterator[int]:
    """A proxy that takes CONNECT to anywhere, and leads to one place."""

    def serve(inner: socket.socket) -> None:
        with inner, contextlib.suppress(OSError), socket.create_connection(target) as outer:
            head = b""
            while not head.endswith(b"\r\n\r\n") and (some := inner.recv(1)):
                head += some
            asked.append(head.decode().split("\r\n")[0])
            inner.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            outer.sendall(inner.recv(65536))
            while some := outer.recv(65536):
                inner.sendall(some)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
