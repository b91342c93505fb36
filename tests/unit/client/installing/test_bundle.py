"""Wheels of what is installed here: whole, with the hashes of their files, and the same each time."""

import base64
import csv
import hashlib
import importlib.metadata
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import holdfast
from holdfast.client.installing import bundle
from holdfast.errors import OperationFailed


def _pack(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> bundle.Bundle:
    needed = [importlib.metadata.distribution(name) for name in names]
    monkeypatch.setattr(bundle, "_find_needed", lambda own: needed)
    folder.mkdir()
    return bundle.pack(folder)


def _check(wheel: Path) -> dict[str, bytes]:
    """Its files, once its own list of them was found right."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    [listed] = [name for name in held if name.endswith(".dist-info/RECORD")]
    rows = {row[0]: row[1:] for row in csv.reader(held[listed].decode().splitlines())}
    assert set(rows) == set(held)
    for name, data in held.items():
        if name != listed:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert rows[name] == [f"sha256={digest}", str(len(data))]
    return held


def test_our_own_wheel_holds_what_runs_here_and_is_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = [_pack(tmp_path / name, monkeypatch) for name in ("first", "second")]
    first, second = (
        tmp_path / name / f"holdfast_agents-{holdfast.__version__}-py3-none-any.whl"
        for name in ("first", "second")
    )
    assert first.read_bytes() == second.read_bytes()
    assert packed[0] == packed[1]
    assert packed[0].name.startswith(f"{holdfast.__version__}-")
    held = _check(first)
    package = Path(holdfast.__file__).parent
    kinds = ("*.py", "*.typed", "*.toml", "*.sql", "web/static/*")
    for path in (path for kind in kinds for path in package.rglob(kind)):
        assert held[f"holdfast/{path.relative_to(package)}"] == path.read_bytes()
    assert "holdfast_agents.py" in held
    assert not [name for name in held if "__pycache__" in name or name.endswith(".pyc")]
    info = f"holdfast_agents-{holdfast.__version__}.dist-info"
    assert b"holdfast = holdfast_agents:main" in held[f"{info}/entry_points.txt"]
    assert b"Requires-Dist: msgspec" in held[f"{info}/METADATA"]


def test_what_we_need_is_packed_as_it_was_with_its_tags_and_without_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pack(tmp_path / "made", monkeypatch, "msgspec", "websockets", "click")
    names = {path.name.split("-")[0]: path for path in (tmp_path / "made").iterdir()}
    assert set(names) == {"holdfast_agents", "msgspec", "websockets", "click"}
    [tag, *_] = [
        line.removeprefix("Tag: ")
        for line in (importlib.metadata.distribution("msgspec").read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ")
    ]
    version, python, abi, platforms = names["msgspec"].stem.split("-")[1:]
    assert version == importlib.metadata.version("msgspec")
    assert tag.split("-")[:2] == [python, abi]
    assert tag.split("-")[2] in platforms.split(".")
    assert any(name.endswith(".so") for name in _check(names["msgspec"]))
    held = _check(names["websockets"])  # it has a program
    assert not [name for name in held if ".." in name or name.startswith(("bin/", "/"))]
    assert not [name for name in held if name.endswith(("INSTALLER", "direct_url.json"))]
    assert names["click"].name.endswith("-py3-none-any.whl")


def test_what_is_needed_is_found_with_what_that_needs_and_pip() -> None:
    found = {one.name.lower() for one in bundle._find_needed(bundle._find_own())}
    assert {"msgspec", "click", "rich", "pygments", "httpx2", "anyio"} <= found
    assert "pytest" not in found
    assert "uvloop" not in found, "an extra"


@pytest.mark.parametrize("version", [None, "0.0.1"])
def test_a_holdfast_that_is_not_installed_as_it_runs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    def find(name: str) -> Distribution:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        (tmp_path / "x.dist-info").mkdir()
        (tmp_path / "x.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n", "utf-8")
        return Distribution.at(tmp_path / "x.dist-info")

    monkeypatch.setattr(importlib.metadata, "distribution", find)
    with pytest.raises(OperationFailed, match=r"without being installed|0\.0\.1 is installed here"):
        bundle.pack(tmp_path)
