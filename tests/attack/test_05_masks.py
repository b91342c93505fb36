"""5: the host replaces a denied path while a command runs, and the mask on it is gone."""

import os
from pathlib import Path

import pytest

from tests.support.exec_command import WAIT_S, Place

WAITS = "echo up; read go; cat {}"


def read_after_replacing(anyone: Place, path: Path, *flags: str) -> tuple[bytes, bytes]:
    """What a command gets to read at a path that is replaced, or made, while it runs."""
    with anyone.start(*flags, "--", "sh", "-c", WAITS.format(path)) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        fresh = path.with_name("fresh")
        fresh.write_text("new secret", "utf-8")
        os.chown(fresh, anyone.uid, anyone.uid)
        fresh.rename(path)
        out, err = child.communicate(b"go\n", timeout=WAIT_S)
        return out, err


def test_a_denied_file_that_is_replaced_stays_denied(anyone: Place) -> None:
    token = anyone.top / "token"
    token.write_text("secret", "utf-8")
    anyone.own()
    out, _ = read_after_replacing(anyone, token, "--deny", str(token))
    assert out == b""


def test_control_a_file_that_is_not_denied_can_be_read_when_it_was_replaced(anyone: Place) -> None:
    token = anyone.top / "token"
    token.write_text("secret", "utf-8")
    anyone.own()
    out, _ = read_after_replacing(anyone, token)
    assert out == b"new secret"


@pytest.mark.parametrize("name", [".netrc", ".config/git/credentials"])
def test_a_credential_that_is_renewed_stays_withheld(anyone: Place, name: str) -> None:
    """The door nobody named: logins are renewed by renaming, also two folders down."""
    place = anyone.top / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("secret", "utf-8")
    anyone.own()
    out, _ = read_after_replacing(anyone, place)
    assert out == b""


def test_what_lies_beside_a_denied_path_is_read_as_before(anyone: Place) -> None:
    """That an entry which is made later cannot be read is the price, and is declared."""
    for name in ("token", "plain", "folder/inner"):
        (anyone.top / name).parent.mkdir(exist_ok=True)
        (anyone.top / name).write_text(name, "utf-8")
    anyone.own()
    done = anyone.sh(
        f"cd {anyone.top}; cat plain folder/inner; echo; ls", "--deny", str(anyone.top / "token")
    )
    assert done.out.split() == ["plainfolder/inner", "folder", "outside", "plain", "token", "ws"]
