"""Messages about files. Pure module."""

from typing import Literal

from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.structs import U64, MethodResult, Params


class PathParams(Params, frozen=True):
    path: PathUri
    sandbox: SandboxContext | None = None


class LinkAwareParams(Params, frozen=True):
    path: PathUri
    follow_symlinks: bool | None = None
    sandbox: SandboxContext | None = None


class WriteFileParams(Params, frozen=True):
    path: PathUri
    data_base64: str
    follow_symlinks: bool | None = None
    sandbox: SandboxContext | None = None


class OpenParams(Params, frozen=True):
    handle_id: str
    path: PathUri
    sandbox: SandboxContext | None = None
    mode: Literal["read", "replace"] = "read"


class HandleResult(MethodResult, frozen=True):
    handle_id: str


class FileContents(MethodResult, frozen=True):
    data_base64: bytes


class ReadBlockParams(Params, frozen=True):
    handle_id: str
    offset: U64
    len: U64


class FileBlock(MethodResult, frozen=True):
    chunk: bytes
    eof: bool


class WriteBlockParams(Params, frozen=True):
    handle_id: str
    offset: U64
    chunk: bytes


class HandleParams(Params, frozen=True):
    handle_id: str


class CreateDirectoryParams(Params, frozen=True):
    path: PathUri
    recursive: bool | None = None
    follow_symlinks: bool | None = None
    sandbox: SandboxContext | None = None


class Metadata(MethodResult, frozen=True):
    is_directory: bool
    is_file: bool
    is_symlink: bool
    size: int
    created_at_ms: int
    modified_at_ms: int


class CanonicalPath(MethodResult, frozen=True):
    path: str


class DirectoryEntry(MethodResult, frozen=True):
    file_name: str
    is_directory: bool
    is_file: bool


class DirectoryListing(MethodResult, frozen=True):
    entries: list[DirectoryEntry]


class WalkOptions(Params, frozen=True):
    max_depth: U64
    max_directories: U64
    max_entries: U64
    follow_directory_symlinks: bool
    prune_hidden_directories: bool = False


class WalkParams(Params, frozen=True):
    path: PathUri
    options: WalkOptions
    sandbox: SandboxContext | None = None


class WalkEntry(MethodResult, frozen=True):
    path: str
    kind: Literal["directory", "file"]


class WalkError(MethodResult, frozen=True):
    path: str
    message: str


class WalkResult(MethodResult, frozen=True):
    entries: list[WalkEntry]
    errors: list[WalkError]
    truncated: bool


class RemoveParams(Params, frozen=True):
    path: PathUri
    recursive: bool | None = None
    force: bool | None = None
    follow_symlinks: bool | None = None
    sandbox: SandboxContext | None = None


class CopyParams(Params, frozen=True):
    source_path: PathUri
    destination_path: PathUri
    recursive: bool
    sandbox: SandboxContext | None = None


class WatchMissingParams(Params, frozen=True):
    watch_id: U64
    missing: list[PathUri]
    present: PathUri | None = None


class WatchResult(MethodResult, frozen=True):
    watching: bool


class MissingChanged(MethodResult, frozen=True):
    watch_id: int
