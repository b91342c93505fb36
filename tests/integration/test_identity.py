"""Who runs a test: the copy of the product for another user, and what is left out for an ordinary user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.support import identity, product_copy

ASK = """
import ctypes, json, pathlib, sqlite3, ssl, sys
import holdfast, tests.support.escapes
top = pathlib.Path(holdfast.__file__).parent
files = [str(path.relative_to(top)) for path in top.rglob("*") if path.is_file() and path.suffix != ".pyc"]
json.dump({"top": str(top), "files": sorted(files)}, sys.stdout)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="setpriv is Linux's")
def test_another_user_runs_the_wheel_with_everything_that_belongs_to_it() -> None:
    command = [str(product_copy.python()), "-c", ASK]
    done = subprocess.run(
        identity.command_as(identity.USER, command),
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["top"].startswith(f"{product_copy.folder()}/")
    ours = Path(holdfast.__file__ or "").parent
    source = [path for path in ours.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert told["files"] == sorted(str(path.relative_to(ours)) for path in source)
    assert {"py.typed", "web/static/index.html"} <= set(told["files"])


def test_a_stranger_reaches_what_is_readable_all_the_way() -> None:
    top = identity.folder_for(identity.SELF)
    try:
        file, link = top / "inner" / "file", top / "link"
        file.parent.mkdir()
        file.touch(mode=0o644)
        link.symlink_to(file)
        told = [product_copy.open_to_others(link)]
        for path, mode in ((file, 0o744), (file, 0o755), (file.parent, 0o750)):
            path.chmod(mode)
            told.append(product_copy.open_to_others(link))
    finally:
        subprocess.run(["rm", "-r", top], check=True)
    assert told == [True, False, True, False]


def test_a_copied_interpreter_looks_for_its_library_beside_itself() -> None:
    folder = "/home/somebody/versions/lib"
    before = b"\x7fELF\0" + folder.encode() + b"\0more"
    after = product_copy.relinked(before, folder)
    assert after.startswith(b"\x7fELF\0$ORIGIN/../lib\0")
    assert (len(after), after[-5:]) == (len(before), b"\0more")
    assert product_copy.relinked(before, "/usr/lib") == before
    with pytest.raises(ValueError, match="too short"):
        product_copy.relinked(b"\0/a/lib\0", "/a/lib")


ONE_OF_EACH = """
import pytest
from tests.support.root_only import root_only

@root_only("to mount")
def test_mounts(): raise AssertionError

IDENTITIES = [pytest.param(0, marks=root_only("to be root")), 1, pytest.param(2, marks=root_only("to mount"))]

@pytest.mark.parametrize("uid", IDENTITIES)
def test_anybody(uid): assert uid == 1
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("as_root", [True, False])
def test_what_only_root_can_try_is_left_out_for_others_and_listed(
    tmp_path: Path, workers: str, as_root: bool
) -> None:
    (tmp_path / "test_it.py").write_text(ONE_OF_EACH, "utf-8")
    (tmp_path / "who.py").write_text(
        f"from tests.support import identity\nidentity.AS_ROOT = {as_root}\n", "utf-8"
    )
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    plugins = ("-p", "who", "-p", "tests.support.root_only", "-p", "xdist.plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            workers,
            *plugins,
            f"--basetemp={tmp_path}/t",
            "test_it.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "CI": "true", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    listed = [line for line in done.stdout.splitlines() if " need root: " in line]
    if as_root:
        assert (done.returncode, listed) == (1, []), done.stdout
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        assert listed == ["1 need root: to be root", "2 need root: to mount"]
