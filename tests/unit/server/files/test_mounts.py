"""Which hosts may answer short file calls on the event loop."""

import pytest

from holdfast.server.files.mounts import LOCAL, Mounts, types_in
from tests.support.rows import every_row

LINE = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - {} /dev/root rw,errors=continue\n"


def test_the_type_follows_the_separator_after_any_number_of_optional_fields() -> None:
    bare = "1 0 0:1 / / rw - tmpfs none rw\n"
    assert types_in(LINE.format("ext3") + bare) == {"ext3", "tmpfs"}


@every_row("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", "autofs", "ceph", "virtiofs"])
def test_what_waits_for_somebody_else_is_not_local(kind: str) -> None:
    assert not types_in(LINE.format(kind)) <= LOCAL


def test_a_closed_table_answers_no() -> None:
    mounts = Mounts()
    mounts.close()
    assert mounts.all_local() is False


def test_without_a_table_every_call_goes_to_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr("os.open", refuse)
    assert Mounts().all_local() is False
