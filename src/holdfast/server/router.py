"""The dispatch of methods to their code, for one connection.

The router owns what ends with the connection: open files, HTTP streams, the watch. A handler takes the
method's typed parameters and returns its result, directly or as an awaitable. `Streamed` is a result with
work that begins once the result has been sent.
"""

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from holdfast.confine.permissions import FileUse, check_mechanism, runs_directly
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.sandbox.policy.policy import BoundPolicy
from holdfast.server.codex import discovery, executorconfig
from holdfast.server.environment import home_directory
from holdfast.server.executor import Executor, ServerSession
from holdfast.server.files import files, walk
from holdfast.server.files.confinedfiles import refuse_early
from holdfast.server.files.handles import FileHandles
from holdfast.server.files.watch import MissingWatch
from holdfast.wire import discovery as wire
from holdfast.wire import rpc
from holdfast.wire.environment import (
    EnvironmentConfig,
    EnvironmentConfigReadParams,
    EnvironmentInfo,
    EnvironmentStatus,
)
from holdfast.wire.files import CopyParams, LinkAwareParams, Metadata, OpenParams
from holdfast.wire.http import BodyDelta, HttpRequestParams, HttpResponse
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.structs import NoParams

if TYPE_CHECKING:
    from holdfast.server.http import HttpRequests

T = TypeVar("T")
READ, WRITE = FileUse.READ, FileUse.WRITE


@dataclass(frozen=True, slots=True)
class Streamed:
    """A result, and the work to do after it was sent."""

    result: msgspec.Struct
    then: Callable[[], Coroutine[None, None, None]]


Handler: TypeAlias = Callable[[Any], Any]  # the table pairs each with the struct its method decodes to


class Router:
    """The handlers of one connection, after its handshake has created a session."""

    def __init__(
        self,
        executor: Executor,
        session: ServerSession,
        send: Callable[[bytes], Awaitable[None]],
        push: Callable[[bytes], None],
    ):
        self._executor = executor
        self._session = session
        self._send = send
        self._push = push
        self._ceiling: BoundPolicy | None = None
        self.handlers: dict[str, Handler] = {
            "environment/info": self._info,
            "environment/status": self._status,
            "environmentConfig/read": self._read_config,
            "process/start": lambda p: self._processes.start(p),
            "process/read": lambda p: self._processes.read(p),
            "process/write": lambda p: self._processes.write(p),
            "process/signal": lambda p: self._processes.signal(p),
            "process/terminate": lambda p: self._processes.terminate(p),
            "process/closeStdin": lambda p: self._processes.close_stdin(p),
            "process/resize": lambda p: self._processes.resize(p),
            "process/denials": lambda p: self._processes.denials(p),
            "fs/readFile": self._read_file,
            "fs/writeFile": self._file_call("fs/writeFile", files.write_file, WRITE),
            "fs/createDirectory": self._file_call("fs/createDirectory", files.create_directory, WRITE),
            "fs/getMetadata": self._get_metadata,
            "fs/canonicalize": self._file_call("fs/canonicalize", files.canonicalize, READ),
            "fs/readDirectory": self._file_call("fs/readDirectory", files.read_directory, READ),
            "fs/remove": self._file_call("fs/remove", files.remove, WRITE),
            "fs/copy": self._file_call("fs/copy", files.copy, WRITE),
            "fs/walk": self._file_call("fs/walk", walk.walk, READ),
            "fs/open": self._open,
            "fs/readBlock": lambda p: self._in_thread(self._handles.read_block, p),
            "fs/writeBlock": lambda p: self._in_thread(self._handles.write_block, p),
            "fs/close": lambda p: self._in_thread(self._handles.close, p),
            "fs/watchMissing": lambda p: self._watch.watch(p),
            "capabilityRoots/discoverV1": self._discover_roots,
            "capabilities/discoverV2": self._discover,
            "http/request": self._request,
        }

    async def aclose(self) -> None:
        """Release what belongs to the connection."""
        made = vars(self)
        if "_watch" in made:
            self._watch.close()
        if "_handles" in made:
            self._handles.close_all()
        if "_http" in made:
            await self._http.aclose()

    # Created on first use: most connections only run commands.

    @functools.cached_property
    def _handles(self) -> FileHandles:
        return FileHandles()

    @functools.cached_property
    def _http(self) -> "HttpRequests":
        from holdfast.server.http import HttpRequests

        return HttpRequests(self._body_delta, self._executor.environ)

    @functools.cached_property
    def _watch(self) -> MissingWatch:
        return MissingWatch(
            lambda watch_id: self._push(rpc.notification("fs/missingChanged", {"watchId": watch_id}))
        )

    @property
    def _processes(self) -> Any:
        return self._session.processes

    async def _in_thread(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._executor.files, functools.partial(call, *args)
        )

    def _file_call(self, method: str, call: Callable[[Any], T], use: FileUse) -> Handler:
        async def handle(params: Any) -> T | msgspec.Raw:
            bound = self._bound(params.sandbox, use)
            if bound is None:
                return await self._in_thread(call, params)
            return await self._confined(bound, method, params, use)

        return handle

    def _bound(self, context: SandboxContext | None, use: FileUse) -> BoundPolicy | None:
        """The policy for a file method; None if it may run directly."""
        if context is None:
            return None
        bound = self._executor.confined.bound(context)
        if runs_directly(bound, use):
            return None
        check_mechanism(context, restricted=True)
        return bound

    def _hides_reads(self, context: SandboxContext) -> bool:
        """Whether it hides more than Holdfast's own directories.

        Discovery reports nothing of those: it reads skills by name.
        """
        return not runs_directly(self._executor.confined.bound(context, homes=()), READ)

    async def _confined(
        self, bound: BoundPolicy, method: str, params: Any, use: FileUse = READ
    ) -> msgspec.Raw:
        if isinstance(params, CopyParams):
            refuse_early(bound, params.source_path, writes=False)
            refuse_early(bound, params.destination_path, writes=True)
        else:
            refuse_early(bound, params.path, writes=use is WRITE)
        return await self._executor.confined.call(bound, method, params, self._ceiling)

    def _get_metadata(self, params: LinkAwareParams) -> Metadata | Awaitable[Metadata | msgspec.Raw]:
        """Run on the loop if it cannot hang: passing it to a thread costs more than the call."""
        bound = self._bound(params.sandbox, READ)
        if bound is not None:
            return self._confined(bound, "fs/getMetadata", params)
        if self._executor.mounts.all_local():
            return files.get_metadata(params)
        return self._in_thread(files.get_metadata, params)

    def _read_file(self, params: LinkAwareParams) -> msgspec.Raw | Awaitable[msgspec.Raw]:
        """Run on the loop if it cannot hang and the file is small."""
        bound = self._bound(params.sandbox, READ)
        if bound is not None:
            return self._confined(bound, "fs/readFile", params)
        if self._executor.mounts.all_local():
            small = files.read_small_file(params)
            if small is not None:
                return small
        return self._in_thread(files.read_file, params)

    async def _open(self, params: OpenParams) -> msgspec.Struct:
        bound = self._bound(params.sandbox, READ if params.mode == "read" else WRITE)
        if bound is None:
            return await self._in_thread(self._handles.open, params)
        return await self._open_confined(bound, params)

    async def _open_confined(self, bound: BoundPolicy, params: OpenParams) -> msgspec.Struct:
        refuse_early(bound, params.path, writes=params.mode != "read")
        self._handles.reserve(params.handle_id)
        try:
            fd = await self._executor.confined.open(bound, params, self._ceiling)
        except BaseException:
            self._handles.release(params.handle_id)
            raise
        return self._handles.adopt(params.handle_id, fd)

    def _info(self, _params: NoParams) -> EnvironmentInfo:
        return self._executor.info()

    def _status(self, _params: NoParams) -> EnvironmentStatus:
        return EnvironmentStatus()

    async def _read_config(self, params: EnvironmentConfigReadParams) -> EnvironmentConfig:
        environ = self._executor.environ
        return await self._in_thread(
            functools.partial(
                executorconfig.read_config,
                params,
                environ=environ,
                home=home_directory(environ),
                hostname=socket.gethostname() or None,
            )
        )

    async def _discover_roots(self, params: wire.DiscoverRootsParams) -> wire.DiscoverRootsResult:
        """Discover roots; one whose sandbox cannot be enforced is refused alone."""
        discovery.check_count(params)
        return wire.DiscoverRootsResult([await self._discover_root(root) for root in params.roots])

    async def _discover_root(self, root: wire.CapabilityRoot) -> wire.RootDiscovery:
        if root.sandbox is None or not self._hides_reads(root.sandbox):
            return await self._in_thread(discovery.discover_root, root)
        confined = self._executor.confined
        try:
            bound = confined.bound(root.sandbox)
            refuse_early(bound, root.path, writes=False)
            return discovery.decode_root(await confined.call(bound, discovery.ONE_ROOT, root))
        except HoldfastError as exc:
            return discovery.refuse(root, f"failed to inspect capability root {root.path.uri}: {exc}")

    async def _discover(self, params: wire.DiscoverParams) -> wire.DiscoverResult | msgspec.Raw:
        environ = self._executor.environ
        home = home_directory(environ)
        if home is None:
            raise InvalidRequest("this executor's user has no home directory")
        codex_home = executorconfig.find_codex_home(environ, home)
        installed = discovery.InstalledIn(codex_home, home)
        if params.sandbox is not None and self._hides_reads(params.sandbox):
            confined = self._executor.confined
            return await confined.call(confined.bound(params.sandbox), discovery.INSTALLED, installed)
        return await self._in_thread(discovery.discover, installed)

    async def _request(self, params: HttpRequestParams) -> HttpResponse | Streamed:
        result, pump = await self._http.request(params)
        return result if pump is None else Streamed(result, pump)

    async def _body_delta(self, delta: BodyDelta) -> None:
        await self._send(rpc.notification("http/request/bodyDelta", delta))
