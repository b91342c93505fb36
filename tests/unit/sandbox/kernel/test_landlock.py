import pytest

from holdfast.sandbox.kernel import landlock
from holdfast.sandbox.plan.grants import NEWEST_KNOWN_ABI


def test_an_older_kernel_can_be_faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_create_ruleset", lambda *_: 7)
    monkeypatch.setenv(landlock.FAKE_ABI, "3")
    assert landlock.abi() == 3
    monkeypatch.setenv(landlock.FAKE_ABI, "8")
    assert landlock.abi() == 7


def test_an_unknown_newer_abi_counts_as_the_newest_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_create_ruleset", lambda *_: 99)
    monkeypatch.delenv(landlock.FAKE_ABI, raising=False)
    assert landlock.abi() == NEWEST_KNOWN_ABI


def test_a_kernel_without_landlock_has_abi_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> int:
        raise OSError(38, "absent")

    monkeypatch.setattr(landlock, "_create_ruleset", absent)
    assert landlock.abi() == 0
