"""What a record may say of its CLI's own files and keys; what it may not is in test_userrecords."""

from dataclasses import replace

import pytest

from holdfast.agents.catalog.hostfiles import HostFile, Way
from holdfast.agents.catalog.recordlogins import NOBODY, Vouched
from holdfast.agents.catalog.userrecords import parse
from holdfast.errors import UsageError
from tests.unit.agents.catalog.test_userrecords import OWN, toy


def test_a_record_may_give_its_cli_its_own_files() -> None:
    (file,) = parse("toy", toy(host_files=[OWN]), "agents.toml").host_files
    assert (file.path, file.into, file.way) == (".toy/settings.json", "home/settings.json", Way.COPIED)


def test_a_record_that_stands_for_one_of_ours_has_its_login_and_no_other() -> None:
    """Somebody adapts a record that we ship: its own name opens its own credentials."""
    login = HostFile(".local/share/kilo/auth.json", "auth.json", Way.COPIED, "its login")
    ours = replace(parse("toy", toy(), "x"), keys=("TOY_KEY",), host_files=(login,))
    own = toy(state=[{"path": "{home}/.local/share/kilo", "role": "r"}], relocation={}, keys=["TOY_KEY"])
    assert parse("toy", own, "agents.toml", vouched=Vouched(like=ours)).keys == ("TOY_KEY",)
    other = toy(state=[{"path": "{home}/.config/goose", "role": "r"}], relocation={})
    for tree, vouched in ((own, NOBODY), (other, Vouched(like=ours))):
        with pytest.raises(UsageError, match="credentials are kept"):
            parse("toy", {**tree, "keys": []}, "agents.toml", vouched=vouched)
