"""Attack 31, the doors that a server opens: its other commands, its messages, and what it writes down."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.worker.book import WorkerRecords
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.wire.processes import SecretKey
from tests.attack.test_31_keys import serving
from tests.support.exec_command import Place, place
from tests.support.managed import LIMITED
from tests.support.peer import Refused, ready
from tests.support.peer import serving as serving_here
from tests.support.root_only import IDENTITIES
from tests.support.webhosts import WebHosts, web_hosts

REAL: Final = "sk-proj-zQ8vT3kLmN5pR7wXyB2c"
# As its user, without any sandbox: everything that the kernel shows of the process that has the key.
NEIGHBOUR: Final = """
import glob, os, sys
mark, server = b"confine." + b"keysprocess import main", sys.argv[1].encode()
def read(path, name):
    try:
        return open(f"{path}/{name}", "rb").read()
    except OSError:
        return b""  # it ended
every = glob.glob("/proc/[0-9]*")
# One that another server starts just now can be looked at, and has nothing so far.
ours = [path[6:].encode() for path in every if server in read(path, "cmdline").split(b"\\0")]
ours = [b"\\nPPid:\\t" + pid + b"\\n" for pid in ours]
found = [path for path in every if mark in read(path, "cmdline")]
found = [path for path in found if any(line in read(path, "status") for line in ours)]
print("found", len(found))
def look(place):
    return os.listdir(place) if place.endswith(("fd", "map_files")) else open(place, "rb").read(64)
for path in found:
    for name in ("environ", "mem", "maps", "fd", "map_files", "syscall"):
        try:
            print("got through", name, look(f"{path}/{name}"))
        except OSError as exc:
            print(name, exc.strerror)
"""


@dataclass(frozen=True)
class Town:
    home: Place
    hosts: WebHosts
    url: str
    told: list[str]

    def words(self, key: str) -> tuple[str, ...]:
        profile, port = str(self.home.outside / "profile.toml"), self.hosts.ports["tls"]
        return ("--env", self.url, "--profile", profile, "--cwd", str(self.home.workspace),
                "--secret", f"{key}=file:{self.home.outside / key}@tls.test:{port}", "--")  # fmt: skip


FIELDS: Final = [  # from root nothing is kept, so that is tried less often
    pytest.param(
        one.values[0], id=one.id, marks=[*one.marks, *([pytest.mark.deep] if one.id == "root" else [])]
    )
    for one in IDENTITIES
]


@pytest.fixture(scope="module", params=FIELDS)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with place(request.param) as home, web_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        authority = home.outside / "authority.pem"
        authority.write_bytes(hosts.authority.read_bytes())
        (home.outside / "profile.toml").write_text(hosts.profile(), "utf-8")
        (home.outside / "ONE").write_text(f"{REAL}\n", "utf-8")
        (home.outside / "TWO").write_text(f"{REAL[::-1]}\n", "utf-8")
        home.own()
        with serving(home, str(authority)) as (url, told):
            yield Town(home, hosts, url, told)


@pytest.fixture
def holder(town: Town) -> Iterator["subprocess.Popen[bytes]"]:
    """A command whose key stays outside, while the test lasts; it says its placeholder."""
    with town.home.start(*town.words("ONE"), "sh", "-c", "echo $ONE; sleep 600") as running:
        yield running


def test_a_neighbour_without_a_sandbox_sees_nothing_of_the_process_that_has_it(
    town: Town, holder: "subprocess.Popen[bytes]"
) -> None:
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith(b"sk-proj-")
    argv = ("--env", town.url, "--full-access", "--", "/usr/bin/python3", "-c", NEIGHBOUR, town.url)
    done = town.home.run(*argv)
    found = re.match(r"found (\d+)", done.out)
    assert found is not None, done
    assert int(found[1]) >= 1
    assert REAL not in done.out
    assert ("got through" in done.out) is (town.home.uid == 0), done.out  # nothing is kept from root


def test_the_placeholder_of_another_command_stays_one(town: Town, holder: "subprocess.Popen[bytes]") -> None:
    assert holder.stdout is not None
    stands = holder.stdout.readline().decode().strip()
    url = f"https://tls.test:{town.hosts.ports['tls']}"
    script = f'curl -sS -m 20 -H "X-One: {stands}" -H "X-Two: $TWO" {url}/borrowed'
    done = town.home.run(*town.words("TWO"), "sh", "-c", script)
    assert "welcome /borrowed" in done.out, done
    [seen] = [one.data for one in town.hosts.seen if b"/borrowed" in one.data]
    assert f"X-One: {stands}".encode() in seen
    assert f"X-Two: {REAL[::-1]}".encode() in seen
    assert REAL.encode() not in seen


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"name": "A", "value": REAL, "hosts": ["*.test"]}, {}),
        ({"name": "A", "value": REAL, "hosts": []}, {}),
        ({"name": REAL, "value": REAL, "hosts": ["api.test"]}, {}),
        ({"name": "A", "value": f"{REAL}\n", "hosts": ["api.test"]}, {}),
        ({"name": "A", "value": [REAL], "hosts": ["api.test"]}, {}),
        ({"name": "A", "value": REAL, "hosts": ["api.test"]}, {"argv": ["echo", REAL]}),
        ({"name": "A", "value": REAL, "hosts": ["api.test"]}, {"sandbox": None}),
        ({"name": "A", "value": REAL, "hosts": ["api.test"]}, {"argv": ["/nowhere"]}),
    ],
)
async def test_no_answer_of_a_server_has_it(given: dict[str, Any], more: dict[str, Any]) -> None:
    """Whatever is wrong with a start. Of the name of a variable it says what was asked for."""
    offline = json.loads(json.dumps(LIMITED).replace('"enabled"', '"restricted"'))
    async with serving_here() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.start("p", "true", **({"sandbox": offline, "secrets": [given]} | more))
    named = given["name"] == REAL
    assert (REAL in str(refused.value)) is named


def test_what_is_written_down_of_a_worker_has_no_key(tmp_path: Path) -> None:
    book = WorkerRecords(tmp_path)
    book.prepare()
    book.folder("w").mkdir()
    keys = [SecretKey("API_KEY", REAL, ["api.test"])]
    book.add_wish("w", WorkerSpec(agent="codex", cwd="/", env={"API_KEY": REAL}, key=REAL, keys=keys))
    assert REAL not in (book.folder("w") / "wish.json").read_text("utf-8")
    assert [key.name for key in book.wish("w").wish.keys] == ["API_KEY"]
