"""Runtimes with resolvers and trust of their own, and git: inside, by name, with one host missing at first.

The host is made up and on this machine's loopback, with an authority of the tests. What each is refused is
named, and the printed grants are enough.
"""

import contextlib
import functools
import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import webhosts
from tests.support.exec_command import Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES

pytestmark = pytest.mark.deep
PASSWORD = "changeit"
JAVA = """
import java.net.URI; import java.net.http.*;
public class Get {
  public static void main(String[] args) throws Exception {
    var asked = HttpRequest.newBuilder(URI.create(args[0])).build();
    System.out.print(HttpClient.newHttpClient().send(asked, HttpResponse.BodyHandlers.ofString()).body());
  }
}
"""
GO = """
package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
  answer, err := http.Get(os.Args[1])
  if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
  io.Copy(os.Stdout, answer.Body)
}
"""


@dataclass(frozen=True)
class Town:
    home: Place
    port: int
    authority: str

    def run(self, words: list[str], grants: list[str], env: dict[str, str]) -> tuple[int, str, list[str]]:
        """Exit code, output, and the grants that were printed."""
        profile = self.home.outside / "profile.toml"
        profile.write_text(
            '[filesystem]\n":root" = "read"\n":workspace" = "write"\n":slash_tmp" = "write"\n'
            '[hosts]\n"other.test" = "allow"\nprivate = true\n[hosts.addresses]\n"tls.test" = "127.0.0.1"\n',
            "utf-8",
        )
        self.home.own()
        done = self.home.run("--json", "--profile", str(profile), *grants, "--", *words, env=env)
        told = json.loads(done.err.splitlines()[-1])["network"]["refused"]
        return done.code, done.out, [row["grant"] for row in told if row["grant"]]


@pytest.fixture(params=IDENTITIES)
def town(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Town]:
    with place(request.param) as home, serving_files(tmp_path) as port:
        authority = home.outside / "authority.pem"
        shutil.copy(tmp_path / "authority.pem", authority)
        home.own()
        yield Town(home, port, str(authority))


@contextlib.contextmanager
def serving_files(folder: Path) -> Iterator[int]:
    """The directory `site` below this one over TLS, with a repository in it."""
    site = folder / "site"
    site.mkdir()
    (site / "page").write_text("welcome\n", "utf-8")
    for words in (
        ["init", "-q", "-b", "main", "work"],
        [
            "-C",
            "work",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.test",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "one",
        ],
        ["clone", "-q", "--bare", "work", "site/work.git"],
        ["-C", "site/work.git", "update-server-info"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=patient(30), capture_output=True)
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context: ssl.SSLContext = webhosts.make_context(folder)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def prepare_git(town: Town) -> tuple[list[str], dict[str, str]]:
    return ["git", "clone", "-q", "{base}/work.git", "cloned"], {"GIT_SSL_CAINFO": town.authority}


def prepare_java(town: Town) -> tuple[list[str], dict[str, str]]:
    """Java trusts a store of its own alone, so that is made."""
    store = town.home.outside / "trust.p12"
    words = [
        "keytool",
        "-importcert",
        "-noprompt",
        "-alias",
        "tests",
        "-file",
        town.authority,
        "-keystore",
        str(store),
    ]
    subprocess.run(
        [*words, "-storepass", PASSWORD, "-storetype", "PKCS12"],
        check=True,
        capture_output=True,
        timeout=patient(60),
    )
    (town.home.outside / "Get.java").write_text(JAVA, "utf-8")
    trust = [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]
    return ["java", *trust, str(town.home.outside / "Get.java"), "{base}/page"], {}


def prepare_go(town: Town) -> tuple[list[str], dict[str, str]]:
    """A static binary: it reads the resolver's settings by itself."""
    (town.home.outside / "get.go").write_text(GO, "utf-8")
    built = str(town.home.outside / "get")
    environ = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    subprocess.run(
        ["go", "build", "-o", built, "get.go"],
        cwd=town.home.outside,
        env=environ,
        check=True,
        capture_output=True,
        timeout=patient(300),
    )
    return [built, "{base}/page"], {"SSL_CERT_FILE": town.authority}


PREPARED = {"git": prepare_git, "java": prepare_java, "go": prepare_go}


@pytest.mark.parametrize("name", PREPARED)
def test_a_program_is_refused_its_host_and_the_printed_grants_are_enough(
    town: Town, name: str, record_property: Callable[[str, object], None]
) -> None:
    if shutil.which(name) is None or (name == "java" and shutil.which("keytool") is None):
        pytest.skip(f"{name} is not installed")
    words, env = PREPARED[name](town)
    town.home.own()
    command = [
        word.format(base=f"https://tls.test:{town.port}") if "{base}" in word else word for word in words
    ]
    grants: list[str] = []
    for wanted in ("--allow-host tls.test", f"--allow-host tls.test:{town.port}"):
        code, _, told = town.run(command, grants, env)
        assert (code != 0, told) == (True, [wanted])
        grants += wanted.split()
    code, out, told = town.run(command, grants, env)
    assert (code, told) == (0, [])
    assert out == "welcome\n" or (town.home.workspace / "cloned" / ".git" / "HEAD").exists()
    record_property("other programs inside", 1)
    record_property(f"{name} inside, as user {town.home.uid}", 1)
