"""Make wheels of this very Holdfast and of its dependencies, from the files that are installed here.

Our own wheel is made of the files that run, also from a checkout, and of the metadata of the installation. A
dependency is packed again as its installation lists it (RECORD), with the tags that its wheel had. pip on the
other machine uses the wheels that fit its Python, and fetches the rest. Nothing is downloaded or built here.
"""

import base64
import hashlib
import importlib.metadata
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final

import holdfast
from holdfast.errors import OperationFailed

MAX_BYTES: Final = 256 << 20  # of all files: the dependencies have 20 MiB
_PURE: Final = "py3-none-any"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # constant, so that the same files give the same wheel
# What an installer adds to the files of a wheel.
_ADDED: Final = frozenset(
    {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
)
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Bundle:
    """`name` is the version with a digest of the files: two checkouts of one version have different names."""

    name: str
    version: str
    bytes: int


def pack(folder: Path) -> Bundle:
    """Write all wheels into an empty folder.

    Raises:
        OperationFailed: the files of this installation cannot be read.
    """
    own = _find_own()
    try:
        wheel = _write_own(own, folder)
        for needed in _find_needed(own):
            _repack(needed, folder)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()[:12]
        size = sum(file.stat().st_size for file in folder.iterdir())
    except OSError as exc:
        raise OperationFailed(f"no wheel can be made of what is installed here: {exc.strerror}") from None
    if size > MAX_BYTES:
        raise OperationFailed(f"what is installed here is more than {MAX_BYTES >> 20} MiB")
    return Bundle(f"{holdfast.__version__}-{digest}", holdfast.__version__, size)


def _find_own() -> Distribution:
    remedy = f"install it here: pip install {holdfast.DISTRIBUTION}"
    try:
        own = importlib.metadata.distribution(holdfast.DISTRIBUTION)
    except PackageNotFoundError:
        raise OperationFailed("this Holdfast runs without being installed", remedy=remedy) from None
    if own.version != holdfast.__version__:
        raise OperationFailed(
            f"{own.version} is installed here, and {holdfast.__version__} runs", remedy=remedy
        )
    return own


def _write_own(own: Distribution, folder: Path) -> Path:
    package = Path(holdfast.__file__).parent
    files = {
        f"holdfast/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and _belongs(path.relative_to(package).parts)
    }
    beside = package.parent / "holdfast_agents.py"  # the module in which the command starts
    files[beside.name] = beside.read_bytes()
    texts = {
        "METADATA": own.read_text("METADATA") or own.read_text("PKG-INFO") or "",
        "entry_points.txt": own.read_text("entry_points.txt") or "",
        "top_level.txt": own.read_text("top_level.txt") or "",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: true\nTag: {_PURE}\n",
    }
    if not texts["METADATA"] or not texts["entry_points.txt"]:
        raise OperationFailed("the installation here lacks its metadata")
    info = f"{_normalize(holdfast.DISTRIBUTION)}-{own.version}.dist-info"
    files |= {f"{info}/{name}": text.encode() for name, text in texts.items() if text}
    return _write_wheel(folder, holdfast.DISTRIBUTION, own.version, _PURE, info, files)


def _belongs(parts: tuple[str, ...]) -> bool:
    """Whether a file belongs to the package, and was not left by an interpreter or an editor."""
    return "__pycache__" not in parts and not parts[-1].startswith(".") and not parts[-1].endswith("~")


def _find_needed(own: Distribution) -> Iterator[Distribution]:
    """Yield the dependencies that are installed here, recursively, and pip, which installs them."""
    seen: set[str] = set()
    waiting = [*_requirements(own), "pip"]
    while waiting:
        name = _normalize(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except PackageNotFoundError:
            continue  # for example one for another system
        yield found
        waiting += _requirements(found)


def _requirements(one: Distribution) -> Iterable[str]:
    for text in one.requires or ():
        match = _REQUIREMENT.fullmatch(text)
        if match is not None and "extra" not in match[2].partition(";")[2]:
            yield match[1]


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _repack(one: Distribution, folder: Path) -> None:
    """Write its wheel again.

    One not installed from a wheel is skipped: pip on the other machine fetches it.
    """
    tags = re.findall(r"^Tag: *([\w.]+)-([\w.]+)-([\w.]+)\s*$", one.read_text("WHEEL") or "", re.MULTILINE)
    files: dict[str, bytes] = {}
    info = ""
    for listed in one.files or ():
        if ".." in listed.parts or "__pycache__" in listed.parts:
            continue  # scripts, which pip creates again, and what an interpreter left
        if listed.parent.name.endswith(".dist-info") and len(listed.parts) == 2:
            info = listed.parent.name
            if listed.name in _ADDED:
                continue
        path = Path(str(listed.locate()))
        if path.is_file():
            files[listed.as_posix()] = path.read_bytes()
    if not tags or not info or f"{info}/METADATA" not in files or _is_linked(one):
        return
    tag = "-".join(".".join(sorted(set(column))) for column in zip(*tags, strict=True))
    _write_wheel(folder, one.name, one.version, tag, info, files)


def _is_linked(one: Distribution) -> bool:
    """Whether it is an editable installation."""
    return '"editable": true' in (one.read_text("direct_url.json") or "")


def _write_wheel(folder: Path, name: str, version: str, tag: str, info: str, files: dict[str, bytes]) -> Path:
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    listed = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    made = folder / f"{_normalize(name)}-{version}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in {**files, f"{info}/RECORD": listed}.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, data)
    return made


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
