"""Install a bundle of wheels for one user, on the machine that it was copied to. Standard library only.

This file is copied with the wheels and run there by any Python >= 3.11; nothing else of ours is run. It
reports the outcome as one line of JSON on standard output.

    ~/.local/share/holdfast/versions/NAME/   a virtual environment, made whole before anything points at it
    ~/.local/bin/holdfast                    a link to the program in it, replaced at once

A version that a process still runs from stays, and so does the previous one, so that a server with sessions
continues.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PIP_S = 600.0  # to fetch and install a dozen wheels on a slow machine
MAX_SAID = 400  # characters of pip's last output
END_S = 10.0  # for a server to end that was asked to
COMPLETE = "complete"


class Refused(Exception):
    """Why nothing was installed: a keyword that the other side knows, and a program's output."""

    def __init__(self, kind: str, said: str = "") -> None:
        super().__init__(kind)
        self.kind, self.said = kind, said


def find_versions(home: Path) -> Path:
    return home / ".local/share/holdfast/versions"


def find_link(home: Path) -> Path:
    return home / ".local/bin/holdfast"


def is_ours(link: Path, versions: Path) -> bool:
    """Whether this is a link into our versions; a program that was installed otherwise is not replaced."""
    try:
        return Path(os.readlink(link)).is_relative_to(versions)
    except OSError:
        return False


def install(stage: Path, home: Path, name: str, version: str) -> dict[str, object]:
    """Install this version if it is missing, and point the link at it.

    Raises:
        Refused: it cannot be done; the previous installation is unchanged.
        OSError: likewise.
    """
    versions, link = find_versions(home), find_link(home)
    if os.path.lexists(link) and not is_ours(link, versions):
        raise Refused("foreign")
    versions.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (versions / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("busy") from None
        place, fetched = versions / name, False
        if not (place / COMPLETE).exists():
            shutil.rmtree(place, ignore_errors=True)
            try:
                fetched = _build(stage, place, version)
            except (OSError, Refused):
                shutil.rmtree(place, ignore_errors=True)
                raise
        before = os.readlink(link) if os.path.lexists(link) else ""
        _point(link, place / "bin" / "holdfast")
        kept = _clean(versions, {name, _name_of(before, versions)})
    return {"place": str(place), "fetched": fetched, "kept": len(kept)}


def uninstall(home: Path) -> dict[str, object]:
    """Remove all versions and the link to one, unless a process was started from there.

    Raises:
        Refused: a version is still in use; nothing was removed.
        OSError: it cannot be removed.
    """
    versions, link = find_versions(home), find_link(home)
    until = time.monotonic() + END_S
    while is_used(versions):
        if time.monotonic() > until:
            raise Refused("used")
        time.sleep(0.1)
    if is_ours(link, versions):
        link.unlink()
    if versions.exists():
        shutil.rmtree(versions)
    return {}


def _build(stage: Path, place: Path, version: str) -> bool:
    """Create a virtual environment with all wheels; return whether some had to be fetched from an index."""
    python = str(place / "bin" / "python")
    _run("venv", [sys.executable, "-I", "-m", "venv", "--without-pip", str(place)])
    pips = sorted(stage.glob("pip-*.whl"))
    offline = ["--no-index", "--find-links", str(stage)]
    if pips:  # as ensurepip does it, which some systems leave out
        pip = [python, "-m", "pip", "install", "-q", *offline, "pip"]
        _run("pip", pip, PYTHONPATH=str(pips[-1]))
    else:
        _run("pip", [python, "-I", "-m", "ensurepip"])
    [wheel] = stage.glob("holdfast_agents-*.whl")
    pip = [python, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check"]
    fetched = False
    try:
        _run("pip", [*pip, "--isolated", *offline, str(wheel)])
    except Refused:
        _run("index", [*pip, "--find-links", str(stage), str(wheel)])
        fetched = True
    said = _run("start", [str(place / "bin" / "holdfast"), "--version"])
    if said.strip() != f"holdfast {version}":
        raise Refused("start", said[-MAX_SAID:])
    (place / COMPLETE).touch()
    return fetched


def _run(kind: str, argv: list[str], **more: str) -> str:
    unwanted = ("PYTHON", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            argv, env=environ | {"PIP_ROOT_USER_ACTION": "ignore"} | more, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PIP_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(kind, f"no end within {PIP_S:g} s") from None
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise Refused(kind, said[-MAX_SAID:])
    return said


def _point(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".holdfast-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    os.replace(fresh, link)


def _name_of(target: str, versions: Path) -> str:
    path = Path(target)
    return path.relative_to(versions).parts[0] if path.is_relative_to(versions) else ""


def _clean(versions: Path, wanted: set[str]) -> list[str]:
    """Remove versions that no process runs from; return the names of those kept besides the wanted ones."""
    others = [one for one in versions.iterdir() if one.is_dir() and one.name not in wanted]
    used = [one.name for one in others if is_used(one)]
    for one in others:
        if one.name not in used:
            shutil.rmtree(one, ignore_errors=True)
    return used


def is_used(place: Path) -> bool:
    """Whether a process was started from below this directory. Without /proc the answer is yes."""
    wanted = os.fsencode(place) + b"/"
    if not os.path.isdir("/proc/self"):
        return True
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in file.read_bytes():
                return True
        except OSError:
            continue
    return False


def main() -> None:
    home, answer = Path(os.environ["HOME"]), {}
    os.umask(os.umask(0o022) | 0o022)
    try:
        if sys.argv[1:] == ["--uninstall"]:
            answer = uninstall(home)
        else:
            stage, (name, version) = Path(__file__).absolute().parent, sys.argv[1:]
            try:
                answer = install(stage, home, name, version)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
    except Refused as exc:
        answer = {"refused": exc.kind, "said": exc.said}
    except OSError as exc:
        answer = {"refused": "files", "said": str(exc)}
    sys.stdout.write(f"\nholdfast-installed {json.dumps(answer)}\n")


if __name__ == "__main__":
    main()
