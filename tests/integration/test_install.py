"""The distribution `holdfast-agents`, installed as people install it, and beside the other `holdfast`.

Dependencies come from the package index at the versions that `make run` has; without it these tests fail.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.support import product_copy
from tests.support.patience import patient

CHECKOUT: Final = Path(__file__).parents[2]
STEP_S: Final = patient(150.0)  # to fetch and install what it needs
FOUND: Final = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))
}
UV: Final = (sys.executable, "-m", "uv")

pytestmark = pytest.mark.timeout(300)


def run(*command: str | Path, **variables: str | Path) -> str:
    environment = FOUND | {name: str(value) for name, value in variables.items()}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=STEP_S)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def wheel() -> Path:
    """The one that other users run in other tests."""
    product_copy.python()
    [built] = (product_copy.folder() / "wheels").glob("*.whl")
    return built


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    """What `make run` installs, as constraints: no hashes, since our own wheel has none."""
    text = (CHECKOUT / "requirements" / "run.txt").read_text("utf-8")
    lines = [line.rstrip(" \\") for line in text.splitlines() if "==" in line]
    file = tmp_path / "constraints.txt"
    file.write_text("\n".join(lines), "utf-8")
    return file


def assert_it_works(command: Path, workspace: Path) -> None:
    assert run(command, "--version") == f"holdfast {holdfast.__version__}\n"
    confined = ("exec", "--cwd", workspace, "--", "sh", "-c", "echo out > made; cat made")
    assert run(command, *confined, HOLDFAST_HOME=workspace / "home") == "out\n"


def test_pip_installs_it_from_a_checkout(tmp_path: Path, pinned: Path) -> None:
    source = tmp_path / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(CHECKOUT / name, source / name)
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", "-c", pinned, source
    )
    assert_it_works(tmp_path / "venv/bin/holdfast", tmp_path)


def test_uv_installs_it_as_a_tool(tmp_path: Path, wheel: Path, pinned: Path) -> None:
    places = {"UV_TOOL_DIR": tmp_path / "tools", "UV_TOOL_BIN_DIR": tmp_path / "bin"}
    run(*UV, "tool", "install", "-q", "--python", sys.executable, "-c", pinned, f"{wheel}[web]", **places)
    assert_it_works(tmp_path / "bin/holdfast", tmp_path)


def test_pipx_installs_it(tmp_path: Path, wheel: Path, pinned: Path) -> None:
    places = {
        "PIPX_HOME": tmp_path / "pipx",
        "PIPX_BIN_DIR": tmp_path / "bin",
        "PIPX_MAN_DIR": tmp_path / "man",
    }
    words = ("install", "--quiet", "--python", sys.executable, "--pip-args", f"-c '{pinned}'", wheel)
    run(sys.executable, "-m", "pipx", *words, **places)
    assert_it_works(tmp_path / "bin/holdfast", tmp_path)


# --- beside the other one


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A wheel like that of the other `holdfast`: two files that are ours by name."""
    wheel, info = tmp_path / "holdfast-0.5.1-py3-none-any.whl", "holdfast-0.5.1.dist-info"
    files = {
        "holdfast/__init__.py": "__version__ = '0.5.1'\n",
        "holdfast/__main__.py": "print('a stranger')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: holdfast\nVersion: 0.5.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return wheel


class Installed:
    """A virtual environment that borrows our dependencies, so that nothing is fetched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(*UV, "venv", "-q", "--python", sys.executable, folder)
        [site] = folder.glob("lib/python*/site-packages")
        borrowed = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        # After its own packages, and without what is linked from there: the checkout stays out.
        (site / "borrowed.pth").write_text("\n".join(borrowed), "utf-8")

    def pip(self, *words: str | Path) -> None:
        run(*UV, "pip", words[0], "-q", "--python", self.folder / "bin/python", *words[1:])

    def holdfast(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.folder / "bin/holdfast"), *words]
        return subprocess.run(
            command, env=FOUND, cwd="/", capture_output=True, text=True, check=False, timeout=STEP_S
        )


@pytest.mark.parametrize("removed", [False, True], ids=["beside it", "and removed again"])
def test_the_other_package_over_ours_is_named_at_the_start(
    tmp_path: Path, wheel: Path, other: Path, removed: bool
) -> None:
    installed = Installed(tmp_path / "venv")
    installed.pip("install", "--no-deps", wheel)
    installed.pip("install", "--no-deps", other)
    if removed:
        installed.pip("uninstall", "holdfast")
    said = installed.holdfast("--version")
    assert said.returncode == 1
    assert "Traceback" not in said.stderr
    assert (
        "files of the package are missing" if removed else "holdfast 0.5.1 is installed beside"
    ) in said.stderr
    assert "pip uninstall -y holdfast; " in said.stderr
    assert said.stderr.rstrip().endswith("install --force-reinstall --no-deps holdfast-agents")
    if not removed:
        installed.pip("uninstall", "holdfast")
    installed.pip("install", "--reinstall", "--no-deps", wheel)
    assert installed.holdfast("--version").stdout == f"holdfast {holdfast.__version__}\n"


def test_the_doctor_names_the_other_package_below_ours(tmp_path: Path, wheel: Path, other: Path) -> None:
    installed = Installed(tmp_path / "venv")
    installed.pip("install", "--no-deps", other)
    installed.pip("install", "--no-deps", wheel)
    said = installed.holdfast("doctor")
    assert "another package with the import name holdfast is installed here" in said.stdout
    assert "-m pip uninstall -y holdfast; " in said.stdout
