"""Capability discovery: the files of given roots, or what the executor's user has installed, read and named.

The installed things lie in fixed places: three folders of skills, and the plugin cache
`plugins/cache/<marketplace>/<plugin>/<version>` below the Codex home.
"""

import os
import re
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from holdfast.errors import InvalidRequest
from holdfast.server.codex.capabilityroot import MAX_DIRECTORIES, discover_root
from holdfast.server.codex.executorconfig import SYSTEM_DIR
from holdfast.server.codex.regular import read_regular
from holdfast.wire import discovery as wire
from holdfast.wire.paths import PathUri

MAX_ROOTS: Final = 128  # of one request: each may cost a whole walk
MAX_REMOTE_BYTES: Final = 16 << 10  # one small JSON object
MAX_REMOTE_ID_BYTES: Final = 1024

LOCATION_WARNING: Final = "some capability locations could not be resolved; discovery may be incomplete"
METADATA_WARNING: Final = "some capability metadata could not be loaded; discovery may be incomplete"

_REMOTE_FILE: Final = ".codex-remote-plugin-install.json"
_MARKETPLACE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLUGIN: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_VERSION: Final = re.compile(r"[A-Za-z0-9._+-]+")
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")


class _Interface(msgspec.Struct, rename="camel"):
    display_name: str | None = None


class _Manifest(msgspec.Struct):
    name: str = ""
    interface: _Interface | None = None


class _RemoteInstall(msgspec.Struct):
    schema_version: Literal[1]
    remote_plugin_id: str


class _CacheLimit(Exception):
    """The plugin cache has more directories than we look at."""


class _Cached(NamedTuple):
    id: str
    version: str
    path: str
    remote_id: str | None


def discover_roots(params: wire.DiscoverRootsParams) -> wire.DiscoverRootsResult:
    """The files of each root, in the order asked for. Sandboxes are the caller's matter, see `refused`.

    Raises:
        InvalidRequest: too many roots.
    """
    if len(params.roots) > MAX_ROOTS:
        raise InvalidRequest(f"capability root discovery accepts at most {MAX_ROOTS} roots")
    return wire.DiscoverRootsResult([discover_root(root) for root in params.roots])


def discover(
    params: wire.DiscoverParams, *, codex_home: str, home: str, system_dir: str = SYSTEM_DIR
) -> wire.DiscoverResult:
    """Installed plugins by id, and skills by location and path. `params.cwd` selects none of them."""
    skills: list[wire.Skill] = []
    incomplete = 0
    for location, path in (
        ("codex-home-skills", os.path.join(codex_home, "skills")),
        ("user-agent-skills", os.path.join(home, ".agents", "skills")),
        ("system-skills", os.path.join(system_dir, "skills")),
    ):
        if os.path.isdir(path):
            found = discover_root(wire.CapabilityRoot(location, PathUri.from_native(path)))
            described, complete = _describe(found)
            origin = wire.DiscoveryOrigin(location, found.path)
            skills += [_locate(skill, origin) for skill in described]
            incomplete += not complete

    plugins: list[wire.Plugin] = []
    cached, resolved = _cached_plugins(os.path.join(codex_home, "plugins", "cache"))
    for entry in sorted(cached):
        found = discover_root(wire.CapabilityRoot(entry.id, PathUri.from_native(entry.path)))
        described, complete = _describe(found)
        plugin = _plugin(entry, found, described)
        plugins += [plugin] if plugin else []
        incomplete += not (plugin and complete)
    locations = [] if resolved else [LOCATION_WARNING]
    return wire.DiscoverResult(plugins, skills, locations + [METADATA_WARNING] * incomplete)


def _locate(skill: wire.PluginSkill, origin: wire.DiscoveryOrigin) -> wire.Skill:
    return wire.Skill(
        name=skill.name,
        description=skill.description,
        short_description=skill.short_description,
        path=skill.path,
        discovery_root=origin,
        dependencies=skill.dependencies,
        policy=skill.policy,
    )


def _plugin(entry: _Cached, found: wire.RootDiscovery, skills: list[wire.PluginSkill]) -> wire.Plugin | None:
    manifest = found.plugin and _manifest(found.plugin.manifest)
    if not found.plugin or not manifest:
        return None
    display = manifest.interface and manifest.interface.display_name
    return wire.Plugin(
        id=entry.id,
        display_name=display if display and display.strip() else manifest.name,
        remote_plugin_id=entry.remote_id,
        version=entry.version,
        root=found.path,
        files=found.plugin,
        skills=skills,
    )


def _describe(found: wire.RootDiscovery) -> tuple[list[wire.PluginSkill], bool]:
    """The usable skills of a root, and whether nothing in it was unusable."""
    from holdfast.server.codex import skills as texts

    namespaces: dict[str, str] = {}
    for file in found.namespace_manifests:
        if manifest := _manifest(file):
            namespaces[_plugin_root(file)] = manifest.name
    described = []
    for skill in found.skills:
        path = skill.instructions.path
        front = texts.front_matter(
            skill.instructions.contents, fallback_name=_basename(path.rpartition("/")[0])
        )
        if front is None:
            continue
        owners = [root for root in namespaces if path.startswith(f"{root}/")]
        prefix = f"{namespaces[max(owners, key=len)]}:" if owners else ""
        extra = texts.metadata(skill.metadata.contents if skill.metadata else "")
        described.append(
            wire.PluginSkill(
                name=prefix + front.name,
                description=front.description,
                short_description=front.short_description,
                path=path,
                dependencies=extra.dependencies,
                policy=extra.policy,
            )
        )
    complete = not found.error and not found.warnings and len(described) == len(found.skills)
    return described, complete


def _manifest(file: wire.CapabilityFile) -> _Manifest | None:
    """The manifest, its name never blank; None if it is not one."""
    try:
        manifest = msgspec.json.decode(file.contents, type=_Manifest)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not manifest.name.strip():
        manifest.name = _basename(_plugin_root(file))
    return manifest


def _plugin_root(manifest: wire.CapabilityFile) -> str:
    return manifest.path.rsplit("/", 2)[0]


def _basename(uri: str) -> str:
    return unquote(uri.rpartition("/")[2])


def _cached_plugins(cache: str) -> tuple[list[_Cached], bool]:
    """The version in force of each cached plugin, and whether nothing was in the way of finding them."""
    found: list[_Cached] = []
    resolved = True
    entered: set[tuple[int, int]] = set()
    folders = _Folders()
    try:
        for marketplace in folders.of(cache, _MARKETPLACE):
            status = os.stat(marketplace.path)
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            for plugin in folders.of(marketplace.path, _PLUGIN):
                versions = [v.name for v in folders.of(plugin.path, _VERSION) if not v.is_symlink()]
                if not versions:
                    continue
                version = _in_force(versions)
                remote_id = None
                try:
                    remote_id = _remote_id(os.path.join(plugin.path, _REMOTE_FILE))
                except (OSError, ValueError):
                    resolved = False
                path = os.path.join(plugin.path, version)
                found.append(_Cached(f"{plugin.name}@{marketplace.name}", version, path, remote_id))
    except (OSError, _CacheLimit):
        resolved = False
    return found, resolved


class _Folders:
    """Lists directories, not more than a bounded number in all."""

    def __init__(self) -> None:
        self._left = MAX_DIRECTORIES

    def of(self, path: str, names: re.Pattern[str]) -> Iterator[os.DirEntry[str]]:
        """The directories in `path` with a name that fits, in order of their names; none if it is missing."""
        try:
            with os.scandir(path) as entries:
                listing = []
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        raise _CacheLimit
                    if names.fullmatch(entry.name) and entry.is_dir():
                        listing.append(entry)
        except FileNotFoundError:
            return
        yield from sorted(listing, key=lambda entry: entry.name)


def _remote_id(path: str) -> str | None:
    """The id a marketplace server gave to the plugin.

    Raises:
        OSError, ValueError: the file is there and says nothing usable.
    """
    try:
        data = read_regular(path, MAX_REMOTE_BYTES)
    except FileNotFoundError:
        return None
    if data is None or len(data) > MAX_REMOTE_BYTES:
        raise ValueError("not a small file")
    remote_id = msgspec.json.decode(data, type=_RemoteInstall).remote_plugin_id.strip()
    if not remote_id or len(remote_id.encode("utf-8")) > MAX_REMOTE_ID_BYTES:
        raise ValueError("not an id")
    return remote_id


def _in_force(versions: list[str]) -> str:
    """The version Codex would load: a local checkout, else the latest release, else the last by name."""
    return "local" if "local" in versions else max(sorted(versions), key=cmp_to_key(_compare))


def _compare(a: str, b: str) -> int:
    left, right = _SEMVER.fullmatch(a), _SEMVER.fullmatch(b)
    if left and right:
        x, y = _precedence(left), _precedence(right)
        return (x > y) - (x < y)
    return (a > b) - (a < b)


def _precedence(version: re.Match[str]) -> tuple[object, ...]:
    numbers = tuple(int(version[index]) for index in (1, 2, 3))
    pre = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in (version[4] or "").split(".")
        if part
    )
    return (*numbers, not pre, pre, version[5] or "")
