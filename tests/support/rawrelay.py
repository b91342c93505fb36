"""A node of a relay in the test's own loop, and peers that speak its protocols byte by byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from holdfast.relay import node as relay_node
from holdfast.relay import store as verbs
from holdfast.relay.node import Node, RelayOptions
from holdfast.relay.registry import Limits
from holdfast.relay.rules.access import Role
from holdfast.relay.store import open_database
from holdfast.server.edges.address import WebSocketAddress
from holdfast.wire import relayframes
from holdfast.wire.registry import PublicKey
from tests.support.patience import patient

LIMIT_S: Final = patient(20.0)
BEAT_S: Final = 0.05  # instead of a second


def key(letter: str) -> dict[str, Any]:
    """A public key that nobody has the other half of."""
    made: dict[str, Any] = msgspec.to_builtins(PublicKey.of(letter.encode() * 32, letter.encode() * 1184))
    return made


class Reply(NamedTuple):
    status: int
    body: dict[str, Any]

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class RelayUnderTest:
    """One node; several may have one store."""

    def __init__(self, url: str, store: str, node: Node) -> None:
        self.url = url
        self.store = store
        self.node = node

    def add_token(
        self, name: str, *roles: Role, tenant: str = "t", environments: tuple[str, ...] = ("*",), **more: Any
    ) -> str:
        given = {
            "roles": roles or tuple(Role),
            "environments": environments,
            "expires_ms": None,
            "token": None,
        }
        _, text = self.change(lambda tx: verbs.add_token(tx, name=name, tenant=tenant, **{**given, **more}))
        return str(text)

    def change(self, verb: Any) -> Any:
        database = open_database(self.store)
        try:
            return database.write(verb)
        finally:
            database.close()

    async def ask(
        self,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        method: str = "POST",
        raw: bytes | None = None,
    ) -> Reply:
        """A request of the registry; `raw` in place of everything."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
        head += f"authorization: Bearer {token}\r\n" if token is not None else ""
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(head.encode() + b"\r\n" + data if raw is None else raw)
                answer = await reader.read()
            finally:
                writer.close()
        first, _, rest = answer.partition(b"\r\n\r\n")
        return Reply(int(first.split()[1]), json.loads(rest) if rest.startswith(b"{") else {})

    async def operate(self, operation: str, environment: str, token: str, **body: object) -> Reply:
        return await self.ask(f"/cloud/environment/{environment}/{operation}", body, token=token)

    async def register(self, token: str, environment: str = "box", letter: str = "e") -> Reply:
        named = {"security_profile": "noise_hybrid_ik_v1", "executor_public_key": key(letter)}
        return await self.operate("register", environment, token, **named)

    async def connect(self, token: str, environment: str = "box", letter: str = "h") -> Reply:
        return await self.operate("connect", environment, token, harness_public_key=key(letter))

    @asynccontextmanager
    async def executor(
        self, token: str, environment: str = "box", letter: str = "e"
    ) -> AsyncIterator[ClientConnection]:
        """Registered and connected."""
        registered = await self.register(token, environment, letter)
        assert registered.status == 200, registered
        async with dial(registered.body["url"]) as socket:
            yield socket

    @asynccontextmanager
    async def harness(
        self, token: str, stream: str, environment: str = "box"
    ) -> AsyncIterator[ClientConnection]:
        """Connected, with its stream claimed."""
        bundle = await self.connect(token, environment)
        assert bundle.status == 200, bundle
        async with dial(bundle.body["url"]) as socket:
            await socket.send(relayframes.resume(stream))
            yield socket


def dial(url: str, **more: Any) -> connect:
    return connect(
        url, compression=None, ping_interval=None, max_size=None, proxy=None, close_timeout=0.1, **more
    )


async def refused(url: str) -> tuple[int, str]:
    """Status and code of an address that must not be accepted."""
    with pytest.raises(InvalidStatus) as caught:
        async with dial(url):
            pass
    said = json.loads(caught.value.response.body or b"{}")
    return caught.value.response.status_code, said.get("error", {}).get("code", "")


async def receive(socket: ClientConnection) -> relayframes.RelayFrame:
    async with asyncio.timeout(LIMIT_S):
        raw = await socket.recv()
    assert isinstance(raw, bytes)
    return relayframes.decode(raw)


async def ended(socket: ClientConnection) -> None:
    """Wait until the relay has ended it."""
    async with asyncio.timeout(LIMIT_S):
        await socket.wait_closed()


@asynccontextmanager
async def relay_under_test(
    store: str, monkeypatch: pytest.MonkeyPatch, limits: Limits | None = None, **options: Any
) -> AsyncIterator[RelayUnderTest]:
    monkeypatch.setattr(relay_node, "BEAT_S", BEAT_S)
    node = Node(RelayOptions(WebSocketAddress("127.0.0.1", 0), store, limits=limits or Limits(), **options))
    began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.get_running_loop().create_task(node.serve(began.set_result))
    try:
        async with asyncio.timeout(LIMIT_S):
            task.add_done_callback(lambda _: began.done() or began.cancel())
            url = await began
        yield RelayUnderTest(url, store, node)
    finally:
        node.stop()
        async with asyncio.timeout(LIMIT_S):
            await task
