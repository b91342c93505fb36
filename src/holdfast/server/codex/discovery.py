"""Capability discovery: read and name the files of given roots, or what the executor's user has installed.

Installed plugins and skills are in fixed places: three folders of skills, and the plugin cache
`plugins/cache/<marketplace>/<plugin>/<version>` below the Codex home.

A file that cannot be used does not affect others: it becomes a warning of its root.
"""

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cmp_to_key
from itertools import islice
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import structs

from holdfast import decoding
from holdfast.errors import HoldfastError, InvalidRequest, from_os_error
from holdfast.server.codex.executorconfig import SYSTEM_DIR, read_regular
from holdfast.wire import discovery as wire
from holdfast.wire.paths import PathUri, uri_of

MAX_ROOTS: Final = 128  # of one request: each may need a whole walk
MAX_REMOTE_BYTES: Final = 16 << 10  # one small JSON object
MAX_REMOTE_ID_BYTES: Final = 1024

LOCATION_WARNING: Final = "some capability locations could not be resolved; discovery may be incomplete"
METADATA_WARNING: Final = "some capability metadata could not be loaded; discovery may be incomplete"

# What a confined file worker is asked for, see CONFINED.
ONE_ROOT: Final = "discoverRoot"
INSTALLED: Final = "discoverInstalled"

_REMOTE_FILE: Final = ".codex-remote-plugin-install.json"
_MARKETPLACE: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLUGIN: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_VERSION: Final = re.compile(r"[A-Za-z0-9._+-]+")
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
MAX_DEPTH: Final = 6  # below the root; deeper trees are sources, not skills
MAX_DIRECTORIES: Final = 2000  # a root that is a home directory must not be read for minutes
MAX_ENTRIES: Final = 20_000
MAX_FILE_BYTES: Final = 1 << 20
MAX_BUNDLE_BYTES: Final = 16 << 20  # of one root: the answer must fit a message

_MANIFEST_FOLDERS: Final = (".codex-plugin", ".claude-plugin", ".cursor-plugin")  # best first


class _Declared(msgspec.Struct, rename="camel"):
    """A manifest's members about its configuration files: any JSON, because V1 must not fail on it."""

    mcp_servers: object = None
    apps: object = None


class InstalledIn(msgspec.Struct, frozen=True):
    """Where to look for installed things. `sandbox` is never sent to a confined worker, so it is None."""

    codex_home: str
    home: str
    system_dir: str = SYSTEM_DIR
    sandbox: None = None


def refuse(root: wire.CapabilityRoot, reason: str) -> wire.RootDiscovery:
    """The answer for a root that is not searched."""
    return wire.RootDiscovery(root.id, root.path.uri, None, [], [], [], reason)


@dataclass(slots=True)
class _Bundle:
    """Reads the files of one root within its byte budget; unusable files are noted in `warnings`."""

    warnings: list[str] = field(default_factory=list)
    left: int = MAX_BUNDLE_BYTES

    def read(self, path: str) -> wire.CapabilityFile | None:
        uri = uri_of(path)
        try:
            data = read_regular(path, MAX_FILE_BYTES)
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                self.warnings.append(f"failed to inspect capability file {uri}: {from_os_error(exc)}")
            return None
        if data is None:
            return None
        if len(data) > MAX_FILE_BYTES:
            self.warnings.append(f"capability file {uri} exceeds the {MAX_FILE_BYTES}-byte limit")
            return None
        if len(data) > self.left:
            self.warnings.append(f"capability root bundle exceeds the {MAX_BUNDLE_BYTES}-byte limit")
            return None
        try:
            contents = data.decode("utf-8")
        except UnicodeDecodeError:
            self.warnings.append(f"capability file {uri} is not UTF-8")
            return None
        self.left -= len(data)
        return wire.CapabilityFile(uri, contents)

    def manifest(self, plugin_root: str) -> wire.CapabilityFile | None:
        candidates = (self.read(_manifest_path(plugin_root, folder)) for folder in _MANIFEST_FOLDERS)
        return next((file for file in candidates if file), None)


@dataclass(slots=True)
class _Scan:
    """What is below a root: paths of SKILL.md files, and for each plugin root its best manifest folder."""

    skills: list[str] = field(default_factory=list)
    plugin_roots: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def note(self, entry: os.DirEntry[str], folder: str) -> None:
        if entry.name == "SKILL.md":
            self.skills.append(entry.path)
        elif entry.name == "plugin.json":
            plugin_root, name = os.path.split(folder)
            if name in _MANIFEST_FOLDERS:
                rank = _MANIFEST_FOLDERS.index(name)
                self.plugin_roots[plugin_root] = min(rank, self.plugin_roots.get(plugin_root, rank))


def discover_root(root: wire.CapabilityRoot) -> wire.RootDiscovery:
    """Read the files of a root; `error` says why it cannot be read. The caller applies the sandbox."""
    try:
        path = os.path.normpath(root.path.native())
        if not stat.S_ISDIR(os.stat(path).st_mode):
            return refuse(root, f"capability root {root.path} is not a directory")
        scan = _scan(path)
    except HoldfastError as exc:
        return refuse(root, f"failed to inspect capability root {root.path}: {exc}")
    except OSError as exc:
        return refuse(root, f"failed to inspect capability root {root.path}: {from_os_error(exc)}")
    bundle = _Bundle(scan.warnings)
    manifest = bundle.manifest(path)
    namespaces = list(_namespaces(bundle, path, manifest, scan))
    plugin = None if manifest is None else _plugin_files(bundle, path, manifest)
    skills = []
    for skill in sorted(scan.skills, key=uri_of):
        if instructions := bundle.read(skill):
            metadata = bundle.read(os.path.join(os.path.dirname(skill), "agents", "openai.yaml"))
            skills.append(wire.SkillFiles(instructions, metadata))
    return wire.RootDiscovery(root.id, root.path.uri, plugin, skills, namespaces, bundle.warnings, None)


def _scan(root: str) -> _Scan:
    """Search breadth first. Follow links to directories, enter each directory once, ignore links to files."""
    found = _Scan()
    top = os.stat(root)
    entered = {(top.st_dev, top.st_ino)}
    queue = deque([(root, 0)])
    room = MAX_ENTRIES
    truncated = False
    while queue and room >= 0:
        folder, depth = queue.popleft()
        try:
            with os.scandir(folder) as entries:
                listing = sorted(islice(entries, room + 1), key=lambda entry: entry.name)
        except OSError as exc:
            if folder == root:
                raise
            found.warnings.append(f"failed to scan capability path {uri_of(folder)}: {from_os_error(exc)}")
            continue
        room -= len(listing)
        for entry in listing:
            try:
                if not entry.is_dir():
                    if entry.is_file(follow_symlinks=False):
                        found.note(entry, folder)
                    continue
                status = entry.stat()
            except OSError as exc:
                uri = uri_of(entry.path)
                found.warnings.append(f"failed to scan capability path {uri}: {from_os_error(exc)}")
                continue
            identity = (status.st_dev, status.st_ino)
            if depth == MAX_DEPTH or identity in entered:
                continue
            if len(entered) == MAX_DIRECTORIES:
                truncated = True
                continue
            entered.add(identity)
            queue.append((entry.path, depth + 1))
    if truncated or room < 0:
        found.warnings.append(f"capability scan reached its traversal limit (root: {uri_of(root)})")
    return found


def _namespaces(
    bundle: _Bundle, root: str, manifest: wire.CapabilityFile | None, scan: _Scan
) -> Iterator[wire.CapabilityFile]:
    """Yield the manifest that names the root, its own or the nearest above, then those of inner plugins."""
    owner = root
    while manifest is None and owner != "/":
        owner = os.path.dirname(owner)
        manifest = bundle.manifest(owner)
    if manifest is not None:
        yield manifest
        scan.plugin_roots.pop(owner, None)
    for plugin_root in sorted(scan.plugin_roots, key=uri_of):
        folder = _MANIFEST_FOLDERS[scan.plugin_roots[plugin_root]]
        if inner := bundle.read(_manifest_path(plugin_root, folder)):
            yield inner


def _plugin_files(bundle: _Bundle, root: str, manifest: wire.CapabilityFile) -> wire.PluginFiles:
    try:
        declared = decoding.decode(manifest.contents, _Declared)
    except (msgspec.DecodeError, RecursionError):
        declared = _Declared()
    files: list[wire.CapabilityFile | None] = []
    for key, value, default in (
        ("mcpServers", declared.mcp_servers, ".mcp.json"),
        ("apps", declared.apps, ".app.json"),
    ):
        if key == "mcpServers" and isinstance(value, dict):
            files.append(None)
            continue
        if isinstance(value, str):
            if problem := _problem_of(value):
                bundle.warnings.append(f"ignoring {key} in {manifest.path}: {problem}")
            else:
                default = value
        files.append(bundle.read(os.path.normpath(os.path.join(root, default))))
    return wire.PluginFiles(manifest, *files)


def _problem_of(declared: str) -> str | None:
    if not declared.startswith("./"):
        return "path must start with `./`"
    rest = declared[2:]
    if not rest or rest.startswith("/") or "\0" in rest or ".." in rest.split("/"):
        return "path must remain below the capability root"
    return None


def _manifest_path(plugin_root: str, folder: str) -> str:
    return os.path.join(plugin_root, folder, "plugin.json")


class _Interface(msgspec.Struct, rename="camel"):
    display_name: str | None = None


class _Manifest(msgspec.Struct):
    name: str = ""
    interface: _Interface | None = None


class _RemoteInstall(msgspec.Struct):
    schema_version: Literal[1]
    remote_plugin_id: str


class _CacheLimit(Exception):
    """The plugin cache has more directories than the limit."""


class _Cached(NamedTuple):
    id: str
    version: str
    path: str
    remote_id: str | None


def check_count(params: wire.DiscoverRootsParams) -> None:
    """Raises InvalidRequest if there are too many roots."""
    if len(params.roots) > MAX_ROOTS:
        raise InvalidRequest(f"capability root discovery accepts at most {MAX_ROOTS} roots")


def decode_root(answer: msgspec.Raw) -> wire.RootDiscovery:
    """Decode what a confined worker found in a root."""
    return decoding.decode(answer, wire.RootDiscovery)


def discover(where: InstalledIn) -> wire.DiscoverResult:
    """Find installed plugins by id, and skills by location and path, as far as they are readable here."""
    codex_home, home, system_dir = where.codex_home, where.home, where.system_dir
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
            skills += [wire.Skill(**structs.asdict(skill), discovery_root=origin) for skill in described]
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
    """The usable skills of a root, and whether everything in it was usable."""
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
    """Parse the manifest, with a name that is never blank; None if it is not one."""
    try:
        manifest = decoding.decode(file.contents, _Manifest)
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
    """The version in force of each cached plugin, and whether the search was complete."""
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
    """Lists directories, up to a bounded number in total."""

    def __init__(self) -> None:
        self._left = MAX_DIRECTORIES

    def of(self, path: str, names: re.Pattern[str]) -> Iterator[os.DirEntry[str]]:
        """Yield the directories in `path` whose names match, in order of names; none if it is missing."""
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
    """The id that a marketplace server gave to the plugin.

    Raises:
        OSError, ValueError: the file exists and has no usable content.
    """
    try:
        data = read_regular(path, MAX_REMOTE_BYTES)
    except FileNotFoundError:
        return None
    if data is None or len(data) > MAX_REMOTE_BYTES:
        raise ValueError("not a small file")
    remote_id = decoding.decode(data, _RemoteInstall).remote_plugin_id.strip()
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


# The operations of a confined file worker besides the methods of files: their input and their function.
CONFINED: Final[Mapping[str, tuple[type, Callable[[Any], object]]]] = {
    ONE_ROOT: (wire.CapabilityRoot, discover_root),
    INSTALLED: (InstalledIn, discover),
}
