"""The executor for the commands of one process: part of a server, under a ceiling.

It shares the expensive parts with the whole server: the launcher and its spare processes, the knowledge about
this host, and the confined file workers. It has its own sessions, so that no other client can resume them,
its own environment to inherit from, and its own threads to inspect the disk, so that a policy that is slow to
inspect delays no other client.
"""

import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from holdfast.confine.permissions import FileUse, check_cwd
from holdfast.confine.sandboxes import narrow_to
from holdfast.errors import InvalidRequest, UsageError
from holdfast.sandbox.policy.policy import BoundPolicy
from holdfast.server.environment import environment_info
from holdfast.server.executor import EventSink, Executor, ServerSession
from holdfast.server.router import Handler, Router
from holdfast.wire.environment import Capabilities, EnvironmentInfo
from holdfast.wire.files import OpenParams
from holdfast.wire.paths import uri_of
from holdfast.wire.permissions import SandboxContext

if TYPE_CHECKING:
    from holdfast.confine.launch import LauncherClient
    from holdfast.confine.sandboxes import Sandboxes
    from holdfast.server.files.confinedfiles import ConfinedFiles
    from holdfast.server.files.mounts import Mounts
    from holdfast.server.processes.commands import CommandCeiling

FILE_THREADS: Final = 2  # a command is planned while a file is inspected

_FILE_CALLS: Final = {
    "fs/readFile": FileUse.READ,
    "fs/writeFile": FileUse.WRITE,
    "fs/createDirectory": FileUse.WRITE,
    "fs/getMetadata": FileUse.READ,
    "fs/canonicalize": FileUse.READ,
    "fs/readDirectory": FileUse.READ,
    "fs/remove": FileUse.WRITE,
    "fs/copy": FileUse.WRITE,
    "fs/walk": FileUse.READ,
}
# All methods that are answered. Those left out read or send something in the server's own name:
# configuration, discovery, HTTP, and watches on directories.
METHODS: Final = frozenset(
    {
        *("initialize", "environment/info", "environment/status"),
        *("process/start", "process/read", "process/write", "process/signal", "process/terminate"),
        *_FILE_CALLS,
        *("fs/open", "fs/readBlock", "fs/writeBlock", "fs/close"),
    }
)


class NarrowedExecutor(Executor):
    """The part of `whole` that the commands of one process may use."""

    methods = METHODS

    def __init__(self, whole: Executor, ceiling: "CommandCeiling") -> None:
        super().__init__(ceiling.env, whole.clocks)
        self._whole = whole
        self.ceiling = ceiling
        self.open_commands = None

    @functools.cached_property
    def launcher(self) -> "LauncherClient":
        return self._whole.launcher

    @functools.cached_property
    def files(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="holdfast-commands")

    @functools.cached_property
    def mounts(self) -> "Mounts":
        return self._whole.mounts

    @functools.cached_property
    def sandboxes(self) -> "Sandboxes":
        return self._whole.sandboxes.under(self._ceiling.bound, self.files)

    @functools.cached_property
    def confined(self) -> "ConfinedFiles":
        return self._whole.confined

    @property
    def _ceiling(self) -> "CommandCeiling":
        if self.ceiling is None:
            raise AssertionError("it was made with one")
        return self.ceiling

    def open(self) -> None:
        self._whole.open()

    def new_owner(self) -> int:
        return self._whole.new_owner()

    def info(self) -> EnvironmentInfo:
        """The capabilities that are left of the server's."""
        return structs.replace(
            environment_info(self.environ),
            cwd=uri_of(self._ceiling.cwd),
            capabilities=Capabilities(
                file_write_streaming=True,
                linux_approved_root_write_preserves_restrictions=True,
                linux_root_write_preserves_devices=True,
                sandboxed_file_streaming=True,
            ),
        )

    def attach(self, listener: EventSink, resume: str | None, *, extended: bool) -> ServerSession:
        """Create a session; sessions cannot be resumed.

        Raises:
            InvalidRequest: a session is to be resumed.
        """
        if resume is not None:
            raise InvalidRequest(f"unknown session id {resume}")
        return super().attach(listener, None, extended=False)

    def close(self) -> None:
        """End every session, with all its processes."""
        for session in self.sessions:
            self.end(session)
        if "files" in vars(self):
            self.files.shutdown(wait=False, cancel_futures=True)


class NarrowedRouter(Router):
    """File calls under the ceiling: none runs in the server itself."""

    def __init__(
        self,
        executor: Executor,
        session: ServerSession,
        send: Callable[[bytes], Awaitable[None]],
        push: Callable[[bytes], None],
    ) -> None:
        super().__init__(executor, session, send, push)
        if executor.ceiling is None:
            raise AssertionError("it is for an executor that has one")
        self._ceiling = executor.ceiling.bound
        for method, use in _FILE_CALLS.items():
            self.handlers[method] = self._narrowed_call(method, use)

    def _narrowed_call(self, method: str, use: FileUse) -> Handler:
        async def handle(params: Any) -> msgspec.Raw:
            return await self._confined(await self._narrow(params.sandbox), method, params, use)

        return handle

    async def _open(self, params: OpenParams) -> msgspec.Struct:
        return await self._open_confined(await self._narrow(params.sandbox), params)

    async def _narrow(self, context: SandboxContext | None) -> BoundPolicy:
        if context is not None:
            check_cwd(context)
        try:
            return await self._in_thread(
                functools.partial(narrow_to, cwd="/", environ=self._executor.environ), self._ceiling, context
            )
        except UsageError as exc:
            raise InvalidRequest(str(exc)) from None
