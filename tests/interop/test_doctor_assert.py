"""`holdfast doctor assert` and the real Codex: it passes where commands run and are held, and nowhere else.

Most of the broken setups are ones that `codex doctor` calls healthy. Each is repaired afterwards, and passes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from holdfast.doctor.assertion.witness import PREFIX
from tests.support import assertion
from tests.support.assertion import GOOD, TIMEOUT_S, Asserted, Bench
from tests.support.codex import requires_codex
from tests.support.tiers import sizes

SHORT, LONG = "app-server command/exec", "codex exec"
PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "start-a-container.md"
WORKSPACE: Final = ("--expect", "workspace-write")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with assertion.bench(requires_codex()) as made:
        made.configure(GOOD)
        yield made


def passes(bench: Bench, *options: str | Path) -> Asserted:
    done = bench.run(*options)
    assert (done.code, done.tree.get("verdict")) == (0, "pass"), (done.failing(), done)
    return done


def look(top: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything there is, with its content and time."""
    found = {}
    for path in sorted((top, *top.rglob("*"))):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


# --- where it works


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (GOOD, "workspace-write"),
        (GOOD + "sandbox_workspace_write.network_access = true\n", "network"),
        ('sandbox_mode = "read-only"\n', "read-only"),
        ('sandbox_mode = "danger-full-access"\n', "full-access"),
        ('default_permissions = ":read-only"\n', "read-only"),
    ],
)
def test_every_mode_is_proven_both_ways_and_the_home_is_only_read(bench: Bench, text: str, mode: str) -> None:
    bench.configure(text)
    before = look(bench.home)
    done = passes(bench, "--expect", mode)
    assert look(bench.home) == before
    assert list(bench.workspace.iterdir()) == []
    assert [step["status"] for step in done.tree["runs"]] == ["ran", "ran"]
    assert (done.tree["agent"], done.tree["binary"]) == ("codex", str(bench.binary))
    assert done.tree["version"] == "0.166.0"
    for route in (SHORT, LONG):
        assert [each["got"] for each in done.tree["claims"] if each["route"] == route]


def test_the_long_way_is_gone_once_for_a_program_and_a_decision(bench: Bench) -> None:
    assert passes(bench).status(LONG) == "ran"
    again = passes(bench)
    assert again.status(LONG) == "skipped"
    assert "proven" in again.tree["runs"][1]["note"]
    assert passes(bench, "--again").status(LONG) == "ran"
    assert passes(bench, *WORKSPACE).status(LONG) == "ran"
    bench.configure(GOOD + 'model = "other"\n')
    assert passes(bench).status(LONG) == "ran"


def test_where_nothing_can_be_noted_the_long_way_is_gone_every_time(bench: Bench) -> None:
    bench.state.write_text("in the way")
    for _ in range(2):
        done = passes(bench)
        assert done.status(LONG) == "ran"
        assert str(bench.state) in done.tree["runs"][1]["note"]


def test_programs_that_the_configuration_names_are_not_started(bench: Bench) -> None:
    mark = bench.base / "started"
    command = f'["-c", "touch {mark}"]'
    bench.configure(
        f'{GOOD}notify = ["touch", "{mark}"]\n[mcp_servers.x]\ncommand = "sh"\nargs = {command}\n'
    )
    passes(bench)
    assert not mark.exists()


def test_what_the_configuration_names_beside_it_is_there(bench: Bench) -> None:
    (bench.home / "shared").mkdir()
    (bench.home / "words.md").write_text("be brief")
    bench.configure(
        f'{GOOD}model_instructions_file = "words.md"\nsandbox_workspace_write.writable_roots = ["shared"]\n'
    )
    passes(bench, "--write", bench.home / "shared")
    assert list((bench.home / "shared").iterdir()) == []


def test_state_that_is_kept_elsewhere_is_not_touched_there(bench: Bench) -> None:
    logs, rows = bench.base / "logs", bench.base / "rows"
    bench.configure(f'log_dir = "{logs}"\nsqlite_home = "{rows}"\n{GOOD}')
    assert passes(bench).status(LONG) == "ran"
    assert not logs.exists()
    assert not rows.exists()
    assert passes(bench).status(LONG) == "skipped"


def test_a_launch_line_is_asserted_as_it_will_be(bench: Bench) -> None:
    loose = ("-c", "sandbox_workspace_write.network_access=true")
    passes(bench, "--expect", "network", *loose)
    assert bench.run("--expect", "workspace-write", *loose).code == 1


def test_secrets_of_the_home_are_not_told(bench: Bench) -> None:
    (bench.home / "auth.json").write_text('{"OPENAI_API_KEY": "hunter2"}')
    bench.configure(GOOD + '[model_providers.p]\nname = "p"\nexperimental_bearer_token = "hunter3"\n')
    done = passes(bench)
    noted = (bench.state / "holdfast" / "assertions.json").read_text()
    told = json.dumps(done.tree) + done.err + noted
    assert "hunter2" not in told
    assert "hunter3" not in told


# --- where it does not


@dataclass(frozen=True)
class Broken:
    """A setup, what fails in it, and what repairs it."""

    name: str
    text: str
    claim: str
    options: tuple[str, ...] = WORKSPACE
    repaired: str = GOOD
    healthy: bool = True  # for `codex doctor`
    prepare: Callable[[Bench], None] | None = None
    repair: Callable[[Bench], None] | None = None

    @property
    def only_text(self) -> bool:
        return self.prepare is None and self.repair is None


def repository(bench: Bench) -> None:
    subprocess.run(["git", "init", "-q", str(bench.workspace)], check=True, timeout=TIMEOUT_S)
    (bench.workspace / ".codex").mkdir()
    (bench.workspace / ".codex" / "config.toml").write_text('sandbox_mode = "danger-full-access"\n')


def trust(bench: Bench, level: str) -> None:
    with (bench.home / "config.toml").open("a") as file:
        file.write(f'[projects."{bench.workspace}"]\ntrust_level = "{level}"\n')


def trusted_repository(bench: Bench) -> None:
    repository(bench)
    trust(bench, "trusted")


def move_home(bench: Bench, place: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    bench.home = bench.home.rename(place)


BROKEN: Final = (
    Broken(
        "full access where something is to be denied",
        'sandbox_mode = "danger-full-access"\n',
        "writes {outside}",
        options=(),
    ),
    Broken(
        "the network is on where it should be off",
        GOOD + "sandbox_workspace_write.network_access = true\n",
        "reaches tcp://127.0.0.1",
    ),
    Broken(
        "the key has fallen into a table that says nothing",
        '[tui]\nsandbox_mode = "workspace-write"\n',
        "writes {workspace}",
    ),
    Broken(
        "the key has fallen into a table that warns",
        '[history]\nsandbox_mode = "workspace-write"\n',
        "reads its configuration",
        healthy=False,
    ),
    Broken(
        "a key is misspelt",
        GOOD + "sandbox_workspace_write.network_acces = true\n",
        "reads its configuration",
        healthy=False,
        options=("--expect", "network"),
        repaired=GOOD + "sandbox_workspace_write.network_access = true\n",
    ),
    Broken(
        "the other vocabulary wins",
        GOOD + 'default_permissions = ":read-only"\n',
        "writes {workspace}",
    ),
    Broken(
        "network access without a mode",
        "sandbox_workspace_write.network_access = true\n",
        "reaches tcp://127.0.0.1",
        options=("--expect", "network"),
        repaired=GOOD + "sandbox_workspace_write.network_access = true\n",
    ),
    Broken(
        "network access beside a profile",
        'default_permissions = ":read-only"\nsandbox_workspace_write.network_access = true\n',
        "reaches tcp://127.0.0.1",
        options=("--expect", "network"),
        repaired=GOOD + "sandbox_workspace_write.network_access = true\n",
    ),
    Broken(
        "a root that is not there",
        GOOD + 'sandbox_workspace_write.writable_roots = ["gone"]\n',
        "writes {home}/gone/file",
        options=("--write", "{home}/gone/file"),
        repaired=GOOD + 'sandbox_workspace_write.writable_roots = ["gone"]\n',
        repair=lambda bench: (bench.home / "gone").mkdir(),
    ),
    Broken("a key twice", GOOD + GOOD, "reads its configuration", healthy=False),
    Broken(
        "a profile as it was written once", GOOD + 'profile = "x"\n', "reads its configuration", healthy=False
    ),
    Broken(
        "a trusted repository asks for more",
        GOOD,
        "writes {outside}",
        prepare=trusted_repository,
        repair=lambda bench: trust(bench, "untrusted"),
    ),
    Broken(
        "a repository will be trusted by the first thread",
        GOOD,
        "cannot be loosened",
        prepare=repository,
        repair=lambda bench: trust(bench, "untrusted"),
    ),
    Broken(
        "commands can write the configuration",
        GOOD,
        "writes {home}/config.toml",
        prepare=lambda bench: move_home(bench, bench.workspace / "home"),
        repair=lambda bench: move_home(bench, bench.base / "elsewhere"),
    ),
)


def repaired_alike(broken: Broken) -> bool:
    """One before it ends in the same setup, and is asked the same."""
    before = BROKEN[: BROKEN.index(broken)]
    ends = (broken.repaired, broken.options)
    return broken.only_text and any(one.only_text and (one.repaired, one.options) == ends for one in before)


@sizes("all_of_it", quick=False, deep=True)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_setup_fails_and_passes_again_when_it_is_repaired(
    bench: Bench, broken: Broken, all_of_it: bool
) -> None:
    bench.configure(broken.text)
    if broken.prepare is not None:
        broken.prepare(bench)
    if broken.healthy:
        assert healthy(bench) == ["ok", "ok"]
    named = {"outside": "/", "workspace": str(bench.workspace), "home": str(bench.home)}
    options = [option.format(**named) for option in broken.options]
    done = bench.run(*options)
    assert (done.code, done.tree["verdict"]) == (1, "fail"), done
    claim = broken.claim.format(**named)
    [one, *_] = [each for each in done.tree["claims"] if each["claim"].startswith(claim) and not holds(each)]
    assert one["evidence"]
    assert one["remedy"]
    if all_of_it or not repaired_alike(broken):
        bench.configure(broken.repaired)
        if broken.repair is not None:
            broken.repair(bench)
        passes(bench, *options)


def holds(claim: dict[str, str]) -> bool:
    return claim["got"] == claim["wanted"]


def healthy(bench: Bench) -> list[str]:
    """What `codex doctor` says about the configuration and the sandbox."""
    done = subprocess.run(
        [str(bench.binary), "doctor", "--json"],
        cwd=bench.workspace,
        env=bench.environ(CODEX_HOME=str(bench.home)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    checks = json.loads(done.stdout)["checks"]
    return [checks[name]["status"] for name in ("config.load", "sandbox.helpers")]


def test_the_entrypoint_of_the_page_starts_what_it_is_given(bench: Bench) -> None:
    script = PAGE.read_text("utf-8").partition("```sh\n")[2].partition("```")[0]
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    places = {"CODEX_HOME": str(bench.home), "WORKSPACE": str(bench.workspace)}
    environ = bench.environ(PATH=programs, CODEX_BIN=str(bench.binary), **places)
    for text, out in ((GOOD, "started\n"), (GOOD + 'web_search = "bogus"\n', "")):
        bench.configure(text)
        done = subprocess.run(
            ["sh", "-c", script, "sh", "echo", "started"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (done.returncode == 0, done.stdout) == (bool(out), out), done


def test_a_thread_that_may_not_write_trusts_nobody(bench: Bench) -> None:
    bench.configure('sandbox_mode = "read-only"\n')
    repository(bench)
    passes(bench, "--expect", "read-only")


def test_what_is_advised_repairs_it(bench: Bench) -> None:
    repository(bench)
    broken = bench.run(*WORKSPACE)
    [remedy] = {each["remedy"] for each in broken.tree["claims"] if not holds(each)}
    assert remedy.startswith("holdfast config codex apply ")
    words = [*bench.command()[:3], *remedy.split()[1:], "--writes", "nothing"]  # with writes it opens /tmp
    environ = bench.environ(CODEX_BIN=str(bench.binary))
    done = subprocess.run(words, env=environ, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done
    passes(bench, "--expect", "read-only")


@pytest.mark.parametrize(
    ("instead", "code", "cause"),
    [
        ("echo 'Error: bwrap: setting up uid map: Permission denied' >&2; exit 1", 1, ["uidmap.eacces"]),
        ("exit 0", 2, []),
    ],
    ids=["dies", "never asks the model"],
)
def test_the_long_way_counts_although_the_short_one_works(
    bench: Bench, instead: str, code: int, cause: list[str]
) -> None:
    wrapper = bench.base / "codex"
    wrapper.write_text(f'#!/bin/sh\ncase $1 in exec) {instead};; esac\nexec {bench.binary} "$@"\n')
    wrapper.chmod(0o755)
    bench.binary = wrapper
    for _ in range(2):
        done = bench.run()
        assert (done.code, done.causes(), done.status(SHORT)) == (code, cause, "ran"), done
        assert done.status(LONG) == ("failed" if cause else "unknown")


def test_a_home_below_temporary_files_behaves_there_as_it_would(bench: Bench) -> None:
    """With a bubblewrap that has no --argv0, no command runs there; Codex only warns."""
    move_home(bench, bench.temporary / "home")
    known = subprocess.run(
        ["bwrap", "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    done = bench.run()
    if "--argv0" in known.stdout:
        assert done.failing() == [f"writes {bench.home}/config.toml (its own configuration)"]
    else:
        assert "runs a command" in done.failing()
        assert done.causes()
    assert done.code == 1
    assert not list(bench.temporary.glob(f"{PREFIX}*"))
    move_home(bench, bench.base / "elsewhere")
    passes(bench)
