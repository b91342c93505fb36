"""18: a command prints an error that never happened, to be granted what it wants."""

import json

import pytest

from tests.support.exec_command import Place


def claimed(anyone: Place, path: str) -> list[str]:
    text = f"sh: 1: cannot create {path}: Read-only file system"
    done = anyone.sh(f"echo '{text}' >&2; exit 1")
    assert done.code == 1
    return done.err.splitlines()


def test_what_was_only_printed_is_claimed_and_not_denied(anyone: Place) -> None:
    said = claimed(anyone, f"{anyone.outside}/new")
    assert f"holdfast: the sandbox denies writing {anyone.outside}/new (claimed by the output)" in said
    assert not any("denied" in line for line in said)


@pytest.mark.parametrize("name", [".ssh/authorized_keys", ".config/gh/hosts.yml", ".netrc"])
def test_a_grant_for_credentials_is_never_suggested(anyone: Place, name: str) -> None:
    """Neither for the file, nor for what is above it because it is missing."""
    said = claimed(anyone, f"{anyone.top}/{name}")
    assert any("(claimed by the output)" in line for line in said)
    assert not any("to allow it" in line for line in said)


def test_control_for_another_path_the_grant_is_suggested(anyone: Place) -> None:
    assert any(
        f"to allow it: --allow-write {anyone.outside}" in line
        for line in claimed(anyone, f"{anyone.outside}/new")
    )


def test_the_kernel_s_witness_makes_it_a_denial(anyone: Place) -> None:
    """The door nobody named: machines are told the same, and a claim stays one for them too."""
    script = f"echo x > {anyone.outside}/new"
    for flags, witnessed in (((), False), (("--watch",), True)):
        done = anyone.sh(script, "--json", *flags)
        assert json.loads(done.err.splitlines()[-1])["denial"]["witnessed"] is witnessed
    assert f"holdfast: the sandbox denied writing {anyone.outside}/new" in anyone.sh(script, "--watch").err
