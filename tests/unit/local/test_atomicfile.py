from pathlib import Path

import pytest

from holdfast.local.atomicfile import write_below


def test_a_file_is_written_whole_with_the_directories_above_it(tmp_path: Path) -> None:
    write_below(tmp_path, ("a", "b", "file"), b"new")
    made = tmp_path / "a" / "b" / "file"
    assert made.read_bytes() == b"new"
    assert made.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in made.parent.iterdir()] == ["file"]


def test_a_link_in_place_of_the_file_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "bashrc"
    precious.write_text("mine", "utf-8")
    state = tmp_path / "state"
    state.mkdir()
    (state / "config").symlink_to(precious)
    write_below(state, ("config",), b"ours")
    assert precious.read_text("utf-8") == "mine"
    assert not (state / "config").is_symlink()
    assert (state / "config").read_bytes() == b"ours"


@pytest.mark.parametrize("top", [True, False])
def test_a_link_in_place_of_a_directory_is_refused(tmp_path: Path, top: bool) -> None:
    elsewhere, state = tmp_path / "elsewhere", tmp_path / "state"
    elsewhere.mkdir()
    if top:
        state.symlink_to(elsewhere)
    else:
        state.mkdir()
        (state / "sub").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"directory|links"):
        write_below(state, ("sub", "config"), b"ours")
    assert list(elsewhere.iterdir()) == []


def test_a_hard_link_of_the_worker_keeps_its_old_content(tmp_path: Path) -> None:
    precious, state = tmp_path / "precious", tmp_path / "state"
    precious.write_text("mine", "utf-8")
    state.mkdir()
    (state / "config").hardlink_to(precious)
    write_below(state, ("config",), b"ours")
    assert precious.read_text("utf-8") == "mine"
