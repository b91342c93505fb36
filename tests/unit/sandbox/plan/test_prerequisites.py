import os
import sys
from pathlib import Path

import pytest

from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.plan.prerequisites import given_by_caller, of_ourselves, of_program

PACKAGE = Path(prerequisites.__file__).resolve().parents[3]


def made(place: Path, text: str = "", *, mode: int = 0o755) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")
    place.chmod(mode)
    return str(place)


def virtual(place: Path, base: Path) -> Path:
    """A virtual environment with one editable package of each kind."""
    made(place / "pyvenv.cfg", f"include-system-site-packages = false\nhome = {base / 'bin'}\n")
    site = place / "lib/python3.11/site-packages"
    made(site / "a.pth", f"import sys\n{place.parent / 'sources'}\nrelative\n")
    mapping = {"tool": str(place.parent / "mapped" / "tool")}
    made(site / "__editable___tool_finder.py", f"MAPPING: dict[str, str] = {mapping!r}\nNOTHING: int\n")
    made(site / "__editable___broken_finder.py", "MAPPING: (")
    (place.parent / "sources").mkdir()
    (place.parent / "mapped" / "tool").mkdir(parents=True)
    made(base / "lib/python3.11/os.py")
    (place / "bin").mkdir()
    os.symlink(made(base / "bin/python3.11"), place / "bin/python")
    return place / "bin" / "python"


def test_we_need_our_interpreter_its_installation_and_this_package() -> None:
    found = of_ourselves()
    assert {sys.executable, sys.prefix, sys.base_prefix} <= set(found)
    assert any(PACKAGE.is_relative_to(os.path.realpath(path)) for path in found)
    assert all(os.path.exists(path) for path in found)


def test_a_directory_from_which_only_others_are_loaded_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).resolve().parents[4])  # of the tests, which are loaded
    monkeypatch.syspath_prepend(root)
    of_ourselves.cache_clear()
    assert root not in of_ourselves()


def test_a_directory_that_only_our_caller_named_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/nowhere", str(PACKAGE), *(p for p in sys.path if p != str(PACKAGE))])
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE}{os.pathsep}")
    given_by_caller.cache_clear()
    try:
        site = PACKAGE.name in ("site-packages", "dist-packages")
        assert given_by_caller() == (() if site else (str(PACKAGE),))
    finally:
        given_by_caller.cache_clear()


def test_a_program_of_npm_needs_what_lies_beside_its_package_and_its_interpreter(tmp_path: Path) -> None:
    script = made(tmp_path / "lib/node_modules/@a/b/bin/cli.js", "#!/usr/bin/env -S A=1 node --flag\n")
    node = made(tmp_path / "node/bin/node")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "cli"
    link.symlink_to(script)
    found = of_program(str(link), str(tmp_path / "node/bin"))
    assert found == (str(link), str(tmp_path / "lib/node_modules"), node)


def test_a_program_of_a_virtual_environment_needs_all_of_that_and_the_installation(tmp_path: Path) -> None:
    base = tmp_path / "base"
    python = virtual(tmp_path / "venv", base)
    script = made(tmp_path / "venv/bin/tool", f"#!{python}\n")
    sources = (str(tmp_path / "sources"), str(tmp_path / "mapped" / "tool"))
    wanted = {script, str(tmp_path / "venv"), str(base), str(base / "bin"), str(python), *sources}
    assert set(of_program(script, "")) == wanted


@pytest.mark.parametrize("head", ["", "#!\n", "#!relative\n", "#!/usr/bin/env\n", "#!/usr/bin/env nothing\n"])
def test_a_plain_file_needs_itself(tmp_path: Path, head: str) -> None:
    tool = made(tmp_path / "tool", head)
    assert of_program(tool, str(tmp_path)) == (tool,)


def test_what_is_not_there_or_calls_itself_ends(tmp_path: Path) -> None:
    assert of_program(str(tmp_path / "nothing"), "") == ()
    tool = made(tmp_path / "tool", f"#!{tmp_path / 'tool'}\n")
    assert of_program(tool, "") == (tool,)
