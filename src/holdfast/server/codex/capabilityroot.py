"""The plugin and skill files below one directory, as they are.

A file that cannot be used never spoils its neighbours: it becomes a warning of its root.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from holdfast.errors import HoldfastError, from_os_error
from holdfast.server.codex.regular import read_regular
from holdfast.wire.discovery import (
    CapabilityFile,
    CapabilityRoot,
    PluginFiles,
    RootDiscovery,
    SkillFiles,
)
from holdfast.wire.paths import uri_of

MAX_DEPTH: Final = 6  # below the root; deeper trees are sources, not skills
MAX_DIRECTORIES: Final = 2000  # a root that is a home directory must not be read for minutes
MAX_ENTRIES: Final = 20_000
MAX_FILE_BYTES: Final = 1 << 20
MAX_BUNDLE_BYTES: Final = 16 << 20  # of one root: the answer must fit a message

_MANIFEST_FOLDERS: Final = (".codex-plugin", ".claude-plugin", ".cursor-plugin")  # best first


class _Declared(msgspec.Struct, rename="camel"):
    """What a manifest says about its configuration files: any JSON, because V1 must not stumble over it."""

    mcp_servers: object = None
    apps: object = None


def refuse(root: CapabilityRoot, reason: str) -> RootDiscovery:
    """The answer for a root that is not looked into."""
    return RootDiscovery(root.id, root.path.uri, None, [], [], [], reason)


@dataclass(slots=True)
class _Bundle:
    """Reads the files of one root within its byte budget; what it cannot use it puts into `warnings`."""

    warnings: list[str] = field(default_factory=list)
    left: int = MAX_BUNDLE_BYTES

    def read(self, path: str) -> CapabilityFile | None:
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
        return CapabilityFile(uri, contents)

    def manifest(self, plugin_root: str) -> CapabilityFile | None:
        candidates = (self.read(_manifest_path(plugin_root, folder)) for folder in _MANIFEST_FOLDERS)
        return next((file for file in candidates if file), None)


@dataclass(slots=True)
class _Scan:
    """What lies below a root: paths of SKILL.md files, and for each plugin root its best manifest folder."""

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


def discover_root(root: CapabilityRoot) -> RootDiscovery:
    """The files of a root; `error` says why it cannot be looked into. Its sandbox is the caller's matter."""
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
            skills.append(SkillFiles(instructions, metadata))
    return RootDiscovery(root.id, root.path.uri, plugin, skills, namespaces, bundle.warnings, None)


def _scan(root: str) -> _Scan:
    """Breadth first; follows links to directories, enters each directory once, overlooks links to files."""
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
    bundle: _Bundle, root: str, manifest: CapabilityFile | None, scan: _Scan
) -> Iterator[CapabilityFile]:
    """The manifest that names the root, its own or the nearest above; then one of each plugin root inside."""
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


def _plugin_files(bundle: _Bundle, root: str, manifest: CapabilityFile) -> PluginFiles:
    try:
        declared = msgspec.json.decode(manifest.contents, type=_Declared)
    except (msgspec.DecodeError, RecursionError):
        declared = _Declared()
    files: list[CapabilityFile | None] = []
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
    return PluginFiles(manifest, *files)


def _problem_of(declared: str) -> str | None:
    if not declared.startswith("./"):
        return "path must start with `./`"
    rest = declared[2:]
    if not rest or rest.startswith("/") or "\0" in rest or ".." in rest.split("/"):
        return "path must remain below the capability root"
    return None


def _manifest_path(plugin_root: str, folder: str) -> str:
    return os.path.join(plugin_root, folder, "plugin.json")
