"""What the flags of `holdfast exec` come to."""

import pytest

from holdfast.errors import UsageError
from holdfast.exec.wish import Preset, Wish, preset


@pytest.mark.parametrize(
    ("flags", "meant"),
    [
        ((), Preset.WORKSPACE_WRITE),
        (("--read-only",), Preset.READ_ONLY),
        (("--full-access",), Preset.FULL_ACCESS),
        (("--profile",), Preset.WORKSPACE_WRITE),  # its file says it instead
    ],
)
def test_a_flag_names_its_preset(flags: tuple[str, ...], meant: Preset) -> None:
    assert preset(flags) is meant


def test_two_presets_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--read-only and --full-access"):
        preset(("--read-only", "--full-access"))


def test_without_flags_nothing_but_the_workspace_is_asked_for() -> None:
    wish = Wish()
    assert wish.preset is Preset.WORKSPACE_WRITE
    assert (wish.allow_write, wish.network, wish.allow_credentials, wish.limits) == ((), None, False, None)
