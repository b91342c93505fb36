"""The table of methods: the decoding, the gate and the lane of each. Pure module.

`METHODS` is the specification that the router, the client and the reference documentation share.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.errors import UsageError
from holdfast.wire import files, processes
from holdfast.wire.discovery import DiscoverParams, DiscoverRootsParams
from holdfast.wire.environment import EnvironmentConfigReadParams, InitializeParams
from holdfast.wire.http import HttpRequestParams
from holdfast.wire.paths import PathUri
from holdfast.wire.structs import NoParams

Family: TypeAlias = Literal[
    "handshake",
    "exec",
    "environment info",
    "environment status",
    "environment config",
    "capability discovery",
    "filesystem",
    "http",
]


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One row: `params` decodes the request, `family` words the gate errors, `control` picks the lane."""

    name: str
    params: type[msgspec.Struct]
    family: Family
    control: bool = False
    ours: bool = False


UNKNOWN: Final = "unknown"  # metrics label of an unknown method: a client must not be able to grow a table

_ROWS: Final = (
    MethodRow("initialize", InitializeParams, "handshake"),
    MethodRow("environment/info", NoParams, "environment info", control=True),
    MethodRow("environment/status", NoParams, "environment status", control=True),
    MethodRow("environmentConfig/read", EnvironmentConfigReadParams, "environment config"),
    MethodRow("process/start", processes.StartParams, "exec"),
    MethodRow("process/read", processes.ReadParams, "exec"),
    MethodRow("process/write", processes.WriteParams, "exec"),
    MethodRow("process/signal", processes.SignalParams, "exec", control=True),
    MethodRow("process/terminate", processes.ProcessParams, "exec", control=True),
    MethodRow("process/closeStdin", processes.ProcessParams, "exec", ours=True),
    MethodRow("process/resize", processes.ResizeParams, "exec", control=True, ours=True),
    MethodRow("process/denials", processes.DenialsParams, "exec", control=True, ours=True),
    MethodRow("fs/readFile", files.LinkAwareParams, "filesystem"),
    MethodRow("fs/open", files.OpenParams, "filesystem"),
    MethodRow("fs/readBlock", files.ReadBlockParams, "filesystem"),
    MethodRow("fs/writeBlock", files.WriteBlockParams, "filesystem"),
    MethodRow("fs/close", files.HandleParams, "filesystem", control=True),
    MethodRow("fs/writeFile", files.WriteFileParams, "filesystem"),
    MethodRow("fs/createDirectory", files.CreateDirectoryParams, "filesystem"),
    MethodRow("fs/getMetadata", files.LinkAwareParams, "filesystem"),
    MethodRow("fs/canonicalize", files.PathParams, "filesystem"),
    MethodRow("fs/readDirectory", files.PathParams, "filesystem"),
    MethodRow("fs/walk", files.WalkParams, "filesystem"),
    MethodRow("fs/remove", files.RemoveParams, "filesystem"),
    MethodRow("fs/copy", files.CopyParams, "filesystem"),
    MethodRow("fs/watchMissing", files.WatchMissingParams, "filesystem"),
    MethodRow("capabilityRoots/discoverV1", DiscoverRootsParams, "capability discovery"),
    MethodRow("capabilities/discoverV2", DiscoverParams, "capability discovery"),
    MethodRow("http/request", HttpRequestParams, "http"),
)

METHODS: Final[dict[str, MethodRow]] = {row.name: row for row in _ROWS}


def _hook(kind: type, value: Any) -> Any:
    if kind is PathUri:
        if not isinstance(value, str):
            raise TypeError("expected a file: URI string")
        return PathUri.parse(value)
    raise AssertionError(f"no struct has a field of type {kind}")


def json_decoder(params: type) -> msgspec.json.Decoder[Any]:
    """A decoder for params that we encoded: directly from JSON to a method's struct."""
    return decoding.decoder(params, _hook)


def decode_params(method: MethodRow, params: Any) -> Any:
    """Convert untyped params to the method's struct.

    Raises:
        UsageError: they do not fit; the text says which member and why.
    """
    if method.params is NoParams:
        if params not in (None, {}):
            raise UsageError("this method takes no parameters")
        return NoParams()
    try:
        return decoding.convert(params, method.params, hook=_hook)
    except msgspec.ValidationError as exc:
        raise UsageError(str(exc)) from None
