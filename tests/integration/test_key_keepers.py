"""Keys from the programs that keep them, the real ones: `pass` with GnuPG, and `secret-tool` with a keyring.

Each has a home of its own, and a session of D-Bus that ends with the test. The command has a placeholder, and
reaches neither the store nor whoever opens it.
"""

import json
import pwd
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.support.exec_command import Done, Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES
from tests.support.tiers import DEEP
from tests.support.webhosts import WebHosts, web_hosts

pytestmark = DEEP

KEY: Final = "sk-proj-zQ8vT3kLmN5pR7wXyB2c"
PASS: Final = """
gpg --batch --quiet --pinentry-mode loopback --passphrase '' --quick-gen-key me@keys.test default default 0
pass init me@keys.test >/dev/null
printf '%s\\nuser: me\\n' "$KEY" | pass insert --multiline 'api/open ai' >/dev/null
"""
KEYRING: Final = """
printf 'a passphrase' | gnome-keyring-daemon --unlock --components=secrets >/dev/null
printf %s "$KEY" | secret-tool store --label=tests service api account me
"""


@dataclass(frozen=True)
class Desk:
    home: Place
    hosts: WebHosts

    def run(self, prepare: str, secret: str, inside: str) -> Done:
        """Put the key away, then run a command whose key is taken from there and is in no variable."""
        base = f"https://tls.test:{self.hosts.ports['tls']}"
        curl = f'curl -sS -m {patient(20):.0f} -H "Authorization: Bearer $TOKEN" {base}/page'
        words = ["--json", "--profile", str(self.home.outside / "profile.toml")]
        words += ["--secret", f"TOKEN={secret}@tls.test:{self.hosts.ports['tls']}"]
        words += ["--", "sh", "-c", f"echo $TOKEN; {curl}; {inside}"]
        run = shlex.join(self.home.command(*words))
        script = f"set -e; umask 077; cd {self.home.workspace}; {prepare}\nunset KEY; {run}"
        session = ["dbus-run-session", "--"] if "secret-tool" in secret else []
        argv = self.home.as_user([*session, "sh", "-c", script])
        more = {
            "KEY": KEY,
            "SSL_CERT_FILE": str(self.home.outside / "authority.pem"),
            "XDG_RUNTIME_DIR": str(self.home.outside / "runtime"),
        }
        return self.home.call(argv, env=more)


@pytest.fixture(params=IDENTITIES)
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        (home.outside / "authority.pem").write_bytes(hosts.authority.read_bytes())
        (home.outside / "profile.toml").write_text(hosts.profile(), "utf-8")
        (home.outside / "runtime").mkdir(mode=0o700)
        home.own()
        try:
            yield Desk(home, hosts)
        finally:
            home.call(home.as_user(["gpgconf", "--kill", "all"]))


@pytest.mark.parametrize(
    ("needed", "prepare", "secret", "inside"),
    [
        pytest.param(
            ("pass", "gpg"),
            PASS,
            "pass:api/open ai",
            "pass show 'api/open ai' || ls ~/.gnupg ~/.password-store || exit 3",
            id="pass",
        ),
        pytest.param(
            ("secret-tool", "gnome-keyring-daemon", "dbus-run-session"),
            KEYRING,
            "secret-tool:service api account me",
            "secret-tool lookup service api account me || exit 3",
            id="secret-tool",
        ),
    ],
)
def test_a_key_comes_from_the_program_that_keeps_it_and_the_command_cannot_ask_that(
    desk: Desk, needed: tuple[str, ...], prepare: str, secret: str, inside: str
) -> None:
    if absent := [name for name in needed if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(absent)} is not installed")
    if "dbus-run-session" in needed and desk.home.uid not in {one.pw_uid for one in pwd.getpwall()}:
        pytest.skip("D-Bus serves users of the password database only")
    done = desk.run(prepare, secret, inside)
    assert done.code == 3, done
    placeholder, *rest = done.out.splitlines()
    assert (placeholder.startswith("sk-proj-"), len(placeholder)) == (True, len(KEY))
    assert rest[0] == "welcome /page"
    assert KEY not in done.out + done.err
    [seen] = [seen.data for seen in desk.hosts.seen if b"/page" in seen.data]
    assert f"Authorization: Bearer {KEY}".encode() in seen
    keys = [
        line for line in json.loads(done.err.splitlines()[-1])["enforcement"]["network"] if "TOKEN" in line
    ]
    assert keys
    wrong = desk.run("", secret.replace("api", "other"), "true")
    assert wrong.code == 2, wrong
    assert "--secret TOKEN" in wrong.err
