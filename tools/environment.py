"""Make the virtual environment that a target of the Makefile needs, wherever the sources lie.

PYTHON tools/environment.py VENV SET [--exactly]      SET is run, test, bench or docs; quick if all is there

What is installed is what requirements/*.txt pins; a changed pin installs again. The package is linked to its
sources where those can be written. From a read-only tree it is built in a temporary copy and installed as a
wheel. Moved sources, a moved environment or, with --exactly, another Python make the environment anew.
Standard library only: it runs before anything is installed.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETS = ("run", "test", "bench")  # each has what those before it have
ALONE = ("docs",)  # needs nothing else, the package neither
STAMP = "holdfast.json"
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src")


class Environment:
    """A virtual environment and the note in it of what it was made from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin" / "python"
        try:
            self.stamp: dict[str, str] = json.loads((self.folder / STAMP).read_text("utf-8"))
        except (OSError, ValueError):
            self.stamp = {}

    def make(self, *, exactly: bool) -> None:
        """Have one that belongs to these sources, and to this interpreter if that one is wanted `exactly`."""
        here = {"root": str(ROOT), "folder": str(self.folder)}
        version = sys.version.split()[0]
        same = all(self.stamp.get(key) == value for key, value in here.items())
        if same and self._runs() and (not exactly or self.stamp.get("python") == version):
            return
        if self.folder.exists() and not (self.folder / "pyvenv.cfg").exists() and any(self.folder.iterdir()):
            raise SystemExit(f"{self.folder} is there and is no virtual environment: choose another VENV=")
        shutil.rmtree(self.folder, ignore_errors=True)
        done = subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=False)
        if done.returncode != 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SystemExit(
                f"{sys.executable} makes no virtual environment in {self.folder}: "
                "is it writable, and is the package python3-venv installed?"
            )
        self.stamp = {**here, "python": version}
        self._note()

    def install(self, name: str) -> None:
        """What requirements/NAME.txt pins."""
        pinned = ROOT / "requirements" / f"{name}.txt"
        digest = hashlib.sha256(pinned.read_bytes()).hexdigest()
        if self.stamp.get(name) != digest:
            self._pip("--require-hashes", "-r", str(pinned))
            self.stamp[name] = digest
            self._note()

    def install_package(self) -> None:
        """The package itself: linked to its sources, or as a wheel where those cannot be written."""
        linked = _is_linked()
        digest = _digest(linked=linked)
        if self.stamp.get("package") == digest:
            return
        # Before 0.2.0 it was called `holdfast`; two names for one package would remove each other's files.
        if any(self.folder.glob("lib/python*/site-packages/holdfast-*.dist-info")):
            self._pip("-y", "holdfast", verb="uninstall")
        if linked:
            self._pip("--no-deps", "--no-build-isolation", "-e", str(ROOT))
        else:
            with tempfile.TemporaryDirectory(prefix="holdfast-build-") as made:
                self._pip("--no-deps", "--no-build-isolation", "--force-reinstall", str(_copied(Path(made))))
        self.stamp["package"] = digest
        self._note()

    def compile_sources(self) -> None:
        """Have bytecode beside what is linked, as pip makes it of what is installed.

        Where PYTHONDONTWRITEBYTECODE is set, every start would compile all that it loads.
        """
        if not _is_linked():
            return
        folders = [str(ROOT / name) for name in ("src", "tests")]
        subprocess.run([str(self.python), "-m", "compileall", "-q", *folders], check=False)

    def _pip(self, *words: str, verb: str = "install") -> None:
        command = [str(self.python), "-m", "pip", verb, "-q", "--disable-pip-version-check", *words]
        # Running as root is not our choice to comment on.
        done = subprocess.run(command, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}, check=False)
        if done.returncode != 0:
            raise SystemExit(f"pip ended with status {done.returncode}")

    def _runs(self) -> bool:
        try:
            return subprocess.run([str(self.python), "-c", ""], check=False).returncode == 0
        except OSError:
            return False

    def _note(self) -> None:
        (self.folder / STAMP).write_text(json.dumps(self.stamp, indent=2) + "\n", "utf-8")


def _is_linked() -> bool:
    return os.access(ROOT, os.W_OK) and os.access(ROOT / "src", os.W_OK)


def _digest(*, linked: bool) -> str:
    """Differs when the package has to be installed again: a link follows its sources by itself."""
    found = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    if not linked:
        for path in sorted((ROOT / "src").rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                status = path.stat()
                found.update(f"{path} {status.st_size} {status.st_mtime_ns}".encode())
    return f"{'linked' if linked else 'built'} {found.hexdigest()}"


def _copied(folder: Path) -> Path:
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in BUILT_FROM:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=skipped, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target)
    for path in (folder, *folder.rglob("*")):  # the modes of a read-only tree came along
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("venv", type=Path)
    options.add_argument("set", choices=(*SETS, *ALONE))
    options.add_argument("--exactly", action="store_true", help="with this very version of Python")
    chosen = options.parse_args()
    environment = Environment(chosen.venv)
    environment.make(exactly=chosen.exactly)
    for name in ALONE if chosen.set in ALONE else SETS[: SETS.index(chosen.set) + 1]:
        environment.install(name)
        if name == "run":
            environment.install_package()
            environment.compile_sources()


if __name__ == "__main__":
    main()
