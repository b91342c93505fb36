"""The program that installs: nothing is found before it is whole, and what is used stays."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.client.installing import farside
from holdfast.client.installing.farside import Refused
from tests.support.patience import patient


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def build(stage: Path, place: Path, version: str) -> bool:
        (place / "bin").mkdir(parents=True)
        if version == "broken":
            raise Refused("index", "no such thing")
        (place / "bin/holdfast").write_text(version, "utf-8")
        (place / farside.COMPLETE).touch()
        return False

    monkeypatch.setattr(farside, "_build", build)
    (tmp_path / "a b").mkdir()
    return tmp_path / "a b"


def install(home: Path, name: str, version: str = "1") -> dict[str, object]:
    return farside.install(home / "stage", home, name, version)


def list_versions(home: Path) -> set[str]:
    return {one.name for one in farside.find_versions(home).iterdir() if one.is_dir()}


def test_a_link_points_at_what_is_whole_and_a_failure_leaves_what_was(home: Path) -> None:
    install(home, "1-a")
    link = farside.find_link(home)
    assert link.read_text("utf-8") == "1"
    with pytest.raises(Refused, match="index"):
        install(home, "2-b", "broken")
    assert link.read_text("utf-8") == "1"
    assert list_versions(home) == {"1-a"}
    install(home, "3-c", "3")
    assert link.read_text("utf-8") == "3"
    assert [one.name for one in link.parent.iterdir()] == ["holdfast"]


def test_what_is_used_and_the_one_before_stay(home: Path) -> None:
    install(home, "1-a")
    program = farside.find_versions(home) / "1-a/bin/python"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as used:
        for name in ("2-b", "3-c"):
            install(home, name)
        assert install(home, "4-d")["kept"] == 1
        assert list_versions(home) == {"1-a", "3-c", "4-d"}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(farside, "END_S", 0.0)
            with pytest.raises(Refused, match="used"):
                farside.uninstall(home)
        used.communicate(b"\n")
    install(home, "5-e")
    assert list_versions(home) == {"4-d", "5-e"}
    farside.uninstall(home)
    assert not farside.find_versions(home).exists()
    assert not os.path.lexists(farside.find_link(home))


@pytest.mark.parametrize("target", [None, "../pipx/holdfast"])
def test_a_program_of_somebody_else_is_not_replaced(home: Path, target: str | None) -> None:
    link = farside.find_link(home)
    link.parent.mkdir(parents=True)
    if target is None:
        link.write_text("theirs", "utf-8")
    else:
        link.symlink_to(target)
    with pytest.raises(Refused, match="foreign"):
        install(home, "1-a")
    farside.uninstall(home)
    assert os.path.lexists(link)
    assert not farside.find_versions(home).exists()


def test_two_do_not_install_at_once(home: Path) -> None:
    install(home, "1-a")
    with (farside.find_versions(home) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="busy"):
            install(home, "2-b")


def test_it_needs_nothing_but_the_standard_library() -> None:
    source = Path(farside.__file__).read_text("utf-8")
    code = (
        f"import sys; sys.modules['holdfast'] = None\nexec(compile({source!r}, 'install.py', 'exec'), {{}})"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=patient(60))
