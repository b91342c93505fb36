"""19: a command reads the keys of whoever runs it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.sdk import find_withheld
from tests.support.exec_command import Place

SECRETS = {"GITHUB_TOKEN": "ghp_1", "DATABASE_URL": "postgres://me:word@db/x"}


@pytest.fixture
def place(anyone: Place) -> Place:
    for name in (".ssh/id_rsa", ".config/gh/hosts.yml", ".config/other"):
        (anyone.top / name).parent.mkdir(parents=True, exist_ok=True)
        (anyone.top / name).write_text(f"content of {name}\n", "utf-8")
    anyone.own()
    return anyone


@pytest.mark.parametrize("backend", ["namespaces", "bwrap", "landlock"])
def test_credentials_cannot_be_read_and_the_rest_can(place: Place, backend: str) -> None:
    script = f"cat {place.top}/.ssh/id_rsa {place.top}/.config/gh/hosts.yml {place.top}/.config/other"
    done = place.sh(script, "--backend", backend)
    assert done.out == "content of .config/other\n"
    assert done.code == 1


def test_control_each_is_allowed_by_one_flag(place: Place) -> None:
    both = f"cat {place.top}/.ssh/id_rsa {place.top}/.config/gh/hosts.yml"
    assert place.sh(both, "--allow-credentials").code == 0
    assert place.sh(f"cat {place.top}/.ssh/id_rsa", "--allow-read", f"{place.top}/.ssh").code == 0
    assert place.sh(both, "--allow-read", f"{place.top}/.ssh").code == 1
    assert place.sh(both, "--full-access").code == 0


def test_a_grant_of_the_whole_home_is_no_grant_of_the_keys_in_it(place: Place) -> None:
    for flag in ("--allow-read", "--allow-write"):
        assert place.sh(f"cat {place.top}/.ssh/id_rsa", flag, str(place.top)).code == 1
    assert place.sh("cat .ssh/id_rsa", "--cwd", str(place.top)).code == 1


def test_secrets_of_the_environment_are_withheld_and_that_is_said(place: Place) -> None:
    """The door nobody named: a password inside of a value."""
    shown = "echo $GITHUB_TOKEN $DATABASE_URL"
    done = place.sh(shown, "--json", env=SECRETS)
    assert done.out == "\n"
    told = json.loads(done.err.splitlines()[-1])["withheld"]
    assert sorted(told["variables"]) == sorted(SECRETS)
    assert f"{place.top}/.ssh" in told["paths"]
    assert place.sh(shown, "--pass-env", "GITHUB_TOKEN", env=SECRETS).out == "ghp_1\n"
    assert place.sh(shown, "--full-access", env=SECRETS).out == "ghp_1 postgres://me:word@db/x\n"


# --- a worker that a person starts


@pytest.fixture
def supervised(place: Place) -> Iterator[Place]:
    yield place
    place.holdfast("down", "--home", str(place.top / "home"))


def started(place: Place, *flags: str) -> tuple[str, str]:
    """What a worker read of each, and what was said at its start."""
    read = (
        f"cat {place.top}/.ssh/id_rsa {place.top}/.config/gh/hosts.yml {place.top}/.config/other > got; true"
    )
    words = ["worker", "run", "shell", "--home", str(place.top / "home"), "--network", "off", *flags, read]
    done = place.holdfast(*words)
    assert done.code == 0, done.out + done.err
    got = (place.workspace / "got").read_text("utf-8")
    return got.replace("content of ", ""), done.err


def test_a_worker_that_a_person_starts_reads_no_credentials_and_that_is_said_once(supervised: Place) -> None:
    got, said = started(supervised)
    assert got == ".config/other\n"
    assert said.count("withheld from the worker: ") == 1
    assert f"{supervised.top}/.ssh" in said
    got, said = started(supervised, "--allow-read", f"{supervised.top}/.ssh")
    assert got == ".ssh/id_rsa\n.config/other\n"
    got, said = started(supervised, "--allow-credentials")
    assert (got, "withheld" in said) == (".ssh/id_rsa\n.config/gh/hosts.yml\n.config/other\n", False)


def test_a_cli_keeps_what_its_record_names_and_nothing_of_another(tmp_path: Path) -> None:
    for name in (".ssh/id_rsa", ".codex/auth.json", ".claude.json", ".gemini/oauth_creds.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    everything = {".ssh", ".codex/auth.json", ".claude.json", ".gemini/oauth_creds.json"}

    def withheld(agent: str, *granted: str) -> set[str]:
        found = find_withheld(agent, cwd="/", granted=granted, environ={"HOME": str(tmp_path)})
        return {path.removeprefix(f"{tmp_path}/") for path in found}

    assert withheld("shell") == everything
    assert withheld("codex") == everything - {".codex/auth.json"}
    assert withheld("claude") == everything - {".claude.json"}
    assert withheld("gemini") == everything - {".gemini/oauth_creds.json"}
    opencode = {".local/share/opencode/auth.json", ".local/share/keyrings/login"}
    for name in opencode:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert withheld("opencode") == {*everything, ".local/share/keyrings"}, "it shares ~/.local with others"
    everything |= {".local/share/opencode/auth.json", ".local/share/keyrings"}
    assert withheld("shell", f"{tmp_path}/.ssh/id_rsa/../") == everything - {".ssh"}
    assert withheld("shell", str(tmp_path), "/") == everything, "whoever grants the home names none of them"
