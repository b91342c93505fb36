"""Real clients of packages inside, with the indexes that this machine is set up for, and no proxy variable.

Which hosts those are is said nowhere here: a client is started with none of them, and gets what the refusal
of each prints, until nothing is refused any more. So every host was missing once, was named, and its grant
was enough. The presets then know the same hosts from the client's own settings.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.exec_command import Done, Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES

pytestmark = pytest.mark.deep
MOST_HOSTS = 8  # that one client asks for here, and their ports
KEPT = ("PIP_", "NPM_CONFIG_", "SSL_CERT_", "CARGO_HTTP", "GOPROXY", "GOSUMDB", "NODE_EXTRA_CA_CERTS")
NO_INDEX = "nothing.invalid"


@dataclass(frozen=True)
class Client:
    """A script that fetches one small thing, and what must be there then."""

    program: str
    script: str
    made: str
    preset: str
    env: Callable[[Place], dict[str, str]] = field(default=lambda _: {})


def _cargo(home: Place) -> dict[str, str]:
    real = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))
    return {"CARGO_HOME": str(home.workspace / "ch"), "RUSTUP_HOME": real}


def _go(home: Place) -> dict[str, str]:
    return {
        "GOPATH": str(home.workspace / "gp"),
        "GOCACHE": str(home.workspace / "gc"),
        "GOFLAGS": "-modcacherw",
    }


MANIFEST = '[package]\\nname="x"\\nversion="0.1.0"\\nedition="2021"\\n[dependencies]\\nitoa="1"\\n'
CLIENTS = {
    "pip": Client(
        "python3",
        "P={python}; $P -m pip --version >/dev/null 2>&1 || P=/usr/bin/python3; "
        "$P -m pip install -q --retries 0 --no-deps --no-cache-dir --disable-pip-version-check"
        " --target there six",
        "there/six.py",
        "pip",
    ),
    "npm": Client(
        "npm",
        "npm install --no-audit --no-fund --fetch-retries 0 --cache $PWD/nc is-number",
        "node_modules/is-number/package.json",
        "npm",
    ),
    "cargo": Client(
        "cargo",
        f"mkdir -p src && echo 'fn main(){{{{}}}}' > src/main.rs && printf '{MANIFEST}' > Cargo.toml && "
        "CARGO_NET_RETRY=0 cargo fetch -q",
        "ch/registry/cache",
        "cargo",
        _cargo,
    ),
    "go": Client(
        "go",
        "printf 'module x\\ngo 1.20\\nrequire github.com/google/uuid v1.6.0\\n' > go.mod && go mod download",
        "gp/pkg/mod/cache/download/github.com/google/uuid/@v/v1.6.0.zip",
        "go",
        _go,
    ),
    "apt": Client("apt-get", "apt-get -q -o APT::Sandbox::User=root download less", "less_*.deb", "apt"),
}


@dataclass(frozen=True)
class Shop:
    home: Place
    client: Client

    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        path = os.environ.get("PATH", os.defpath)
        return {**self.home.env(), "PATH": f"{path}:/usr/bin:/bin", **kept, **self.client.env(self.home)}

    def fetch(self, *flags: str) -> Done:
        script = self.client.script.format(python=self.home.python)
        return self.home.run(*flags, "--", "sh", "-c", script, env=self.env())

    def has_it(self) -> bool:
        return any(self.home.workspace.glob(self.client.made))

    def empty(self) -> None:
        """As it was before."""
        shutil.rmtree(self.home.workspace)
        (self.home.workspace / ".git").mkdir(parents=True)
        self.home.own()


@pytest.fixture(params=IDENTITIES)
def home(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_refused_each_host_and_the_printed_grants_are_enough(
    home: Place, name: str, record_property: Callable[[str, object], None]
) -> None:
    shop = Shop(home, CLIENTS[name])
    _require(shop)
    grants = ["--allow-host", NO_INDEX]
    for _ in range(2 * MOST_HOSTS):
        done = shop.fetch("--json", *grants)
        told = json.loads(done.err.splitlines()[-1])
        if done.code == 0:
            break
        fresh = [row["grant"] for row in told["network"]["refused"] if row["grant"]]
        assert fresh, done
        for grant in dict.fromkeys(fresh):
            assert not set(grant.split()) <= {*grants}, f"granted and refused again: {done}"
            grants += grant.split()
    assert (done.code, shop.has_it()) == (0, True), done
    assert len(grants) > 2, "no host was missing"
    record_property("clients of packages inside", 1)
    record_property(f"{name} inside, as user {home.uid}", 1)
    record_property("hosts missing, named and granted", grants.count("--allow-host") - 1)
    _try_preset(shop, grants)


def _try_preset(shop: Shop, grants: list[str]) -> None:
    """The preset has the same hosts; addresses that are not public are nobody's settings."""
    if shop.client.preset == "cargo":  # says where its registry is once it has been there
        kept = shop.home.outside / "ch"
        shutil.copytree(shop.home.workspace / "ch", kept)
        environ = {**shop.env(), "CARGO_HOME": str(kept)}
    else:
        environ = shop.env()
    shop.empty()
    private = [flag for flag in grants if flag == "--allow-private"]
    script = shop.client.script.format(python=shop.home.python)
    if shop.client.preset == "cargo":
        script = script.replace("cargo fetch", f"CARGO_HOME={shop.home.workspace / 'ch'} cargo fetch")
    words = ("--report", "--allow-net", shop.client.preset, *private, "--", "sh", "-c", script)
    done = shop.home.run(*words, env=environ)
    assert (done.code, shop.has_it()) == (0, True), done
    assert f"holdfast: --allow-net {shop.client.preset}: " in done.err


def _require(shop: Shop) -> None:
    """The client is there for this user, and reaches its index without a sandbox."""
    program = shutil.which(shop.client.program, path=shop.env()["PATH"])
    if program is None:
        pytest.skip(f"{shop.client.program} is not installed")
    script = shop.client.script.format(python=shop.home.python)
    try:
        plain = subprocess.run(
            shop.home.as_user(["sh", "-c", script]),
            cwd=shop.home.workspace,
            env=shop.env(),
            capture_output=True,
            timeout=patient(120),
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{shop.client.program} does not reach its index here")
    if plain.returncode:
        last = plain.stderr.decode(errors="replace").strip().splitlines()[-1:]
        pytest.skip(f"{shop.client.program} does not work here without a sandbox either: {last}")
    shop.empty()


def test_no_index_is_named_here() -> None:
    text = Path(__file__).read_text("utf-8")
    assert "https://" not in text.replace('"https://" not in', "")
