"""A host that executors dial, with keys for tests, and executors that do."""

import asyncio
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from holdfast.direct.admission import ExecutorKey
from holdfast.direct.host import DirectHost
from holdfast.server.edges.address import DirectAddress
from holdfast.server.edges.binding import ServeOptions
from holdfast.server.edges.listen import Server
from holdfast.server.executor import Executor
from holdfast.wire import sigv4
from holdfast.wire.sigv4 import AwsKeys, HttpRequest, Scope
from tests.support.peer import ENV
from tests.support.relays import remote_executor

REGION: Final = "eu-central-1"
KEY: Final = ExecutorKey("AKIDFORTESTS", "a-secret-for-tests", ("box*",), "a-session-token")
DIRECT: Final = ("--remote-transport", "direct", "--aws-sigv4")
OURS: Final = (sys.executable, "-m", "holdfast", "serve", "--log-level", "info")
VARIABLES: Final = {
    "AWS_ACCESS_KEY_ID": KEY.key_id,
    "AWS_SECRET_ACCESS_KEY": KEY.secret,
    "AWS_SESSION_TOKEN": KEY.session_token or "",
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@asynccontextmanager
async def direct_host(
    *keys: ExecutorKey, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[DirectHost]:
    async with DirectHost.listen(keys or (KEY,), region=REGION, port=port, tls=tls) as host:
        yield host


def direct_executor(
    argv: tuple[str, ...], home: Path, url: str, environment: str = "box", **more: str
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """An executor as a process of its own; SIGTERM ends it."""
    return remote_executor((*argv, *DIRECT), home, url, environment, "", **(VARIABLES | more))


def sign(request: HttpRequest, key: ExecutorKey = KEY, *, ahead_s: float = 0.0) -> dict[str, str]:
    """The headers that sign it, by a clock that is so far ahead."""
    keys = AwsKeys(key.key_id, key.secret, key.session_token)
    return sigv4.sign(request, keys, Scope(REGION, "execute-api"), time.time() + ahead_s)


@asynccontextmanager
async def serving_host(
    url: str, environment: str = "box", *, key: ExecutorKey = KEY, ahead_s: float = 0.0
) -> AsyncIterator["asyncio.Future[None]"]:
    """An executor of ours in this loop, and its life."""

    async def sign_now(request: HttpRequest) -> dict[str, str]:
        return sign(request, key, ahead_s=ahead_s)

    server = Server(ServeOptions(DirectAddress(url, environment, sign_now)), Executor(ENV))
    task = asyncio.ensure_future(server.serve(lambda _: None))
    try:
        yield task
    finally:
        server.stop()
        await asyncio.wait([task])
