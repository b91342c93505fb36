"""19: a command reads the keys of whoever runs it."""

import json

import pytest

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
