"""What is asked of a registry, and what its answers and failures mean."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from holdfast.errors import HoldfastError, OperationFailed, ProtocolMismatch, TokenRefused, Unreachable
from holdfast.rendezvous import registryclient
from holdfast.rendezvous.registryclient import Registry, RegistryUnavailable
from holdfast.wire.registry import PROFILE, ConnectAnswer, PublicKey
from tests.support.outwardproxy import outward_proxy
from tests.support.relayservice import ENVIRONMENT, TOKEN, RelayService, relay_service
from tests.support.rows import every_row
from tests.support.tcp import tcp_server

KEY = PublicKey.of(bytes(32), bytes(1184))
GOOD = {
    "environment_id": ENVIRONMENT,
    "url": "ws://relay",
    "security_profile": PROFILE,
    "executor_registration_id": "r",
    "executor_public_key": msgspec.to_builtins(KEY),
    "harness_key_authorization": "a",
}


@pytest.fixture
async def service() -> AsyncIterator[RelayService]:
    async with relay_service() as service:
        yield service


def registry(service: RelayService, path: str = "") -> Registry:
    return Registry(
        service.url + path,
        ENVIRONMENT,
        lambda: {"authorization": f"Bearer {TOKEN}", "chatgpt-account-id": "me"},
    )


async def connect(service: RelayService) -> ConnectAnswer:
    asking = registry(service)
    try:
        return await asking.connect(KEY)
    finally:
        await asking.aclose()


async def test_a_question_has_the_headers_and_the_path_of_the_reference(service: RelayService) -> None:
    service.answers["connect"].append((200, GOOD))
    answer = await connect(service)
    assert answer.executor_public_key == KEY
    (asked,) = service.asked
    assert {
        name: asked.headers[name] for name in ("authorization", "chatgpt-account-id", "content-type")
    } == {
        "authorization": f"Bearer {TOKEN}",
        "chatgpt-account-id": "me",
        "content-type": "application/json",
    }
    assert set(asked.body) == {"harness_public_key"}


@every_row(
    ("status", "content", "wanted"),
    [
        (401, {"error": {"message": "no"}}, TokenRefused),
        (403, {}, TokenRefused),
        (302, {}, OperationFailed),
        (400, {}, OperationFailed),
        (404, {"error": {"code": "environment_not_found"}}, OperationFailed),
        (409, {"error": {"code": "registration_conflict"}}, OperationFailed),
        (409, {"error": {"code": "environment_offline"}}, RegistryUnavailable),
        (409, {"detail": {"code": "environment_offline"}}, RegistryUnavailable),
        (408, {}, RegistryUnavailable),
        (429, {}, RegistryUnavailable),
        (500, b"<html>", RegistryUnavailable),
        (503, {}, RegistryUnavailable),
        (200, b"{", ProtocolMismatch),
        (200, {}, ProtocolMismatch),
        (200, GOOD | {"environment_id": "other"}, ProtocolMismatch),
        (200, GOOD | {"security_profile": "plain"}, ProtocolMismatch),
        (200, GOOD | {"url": " "}, ProtocolMismatch),
        (200, GOOD | {"executor_registration_id": ""}, ProtocolMismatch),
        (200, GOOD | {"harness_key_authorization": ""}, ProtocolMismatch),
        (200, GOOD | {"executor_public_key": {**GOOD["executor_public_key"], "more": 1}}, ProtocolMismatch),
        (200, json.dumps(GOOD).encode() + b" " * 70_000, ProtocolMismatch),
    ],
    ids=range(21),
)  # fmt: skip
async def test_what_an_answer_means(status: int, content: object, wanted: type[HoldfastError]) -> None:
    async with relay_service() as service:
        service.answers["connect"].append((status, content))
        with pytest.raises(wanted) as caught:
            await connect(service)
        assert isinstance(caught.value, Unreachable) is (wanted is RegistryUnavailable)
        assert len(service.asked) == 1  # no redirect was followed, nothing was sent twice


async def test_silence_is_given_up(service: RelayService) -> None:
    service.answers["connect"].append(None)
    asking = registry(service)
    with pytest.raises(RegistryUnavailable, match="did not answer"):
        await asking.connect(KEY, timeout_s=0.1)
    await asking.aclose()


@every_row("rest", [b"", b'{"environment_id"'], ids=["no body", "half a body"])
async def test_an_answer_that_is_cut_off_may_be_asked_for_again(rest: bytes) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + rest)

    async with tcp_server(cut) as port:
        asking = Registry(f"http://127.0.0.1:{port}", ENVIRONMENT, dict)
        with pytest.raises(RegistryUnavailable):
            await asking.connect(KEY)
        await asking.aclose()


async def test_a_registry_that_is_not_there_may_be_asked_again(service: RelayService) -> None:
    asking = Registry("http://127.0.0.1:1", ENVIRONMENT, dict)
    with pytest.raises(RegistryUnavailable, match="cannot be reached"):
        await asking.register(KEY)
    await asking.aclose()


async def test_neither_logs_nor_errors_hold_a_secret(
    service: RelayService, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is asked and whatever comes back; an application may log everything that it can."""
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    async def ask(asking: Callable[[Registry], Awaitable[object]]) -> None:
        made = registry(service, "/PATH-SECRET")
        try:
            await asking(made)
        except HoldfastError as exc:
            told.append(f"{exc} {exc.remedy} {exc.__cause__}")
        finally:
            await made.aclose()

    for answer in (
        (200, {"valid": False}),
        (500, b"BODY-SECRET"),
        (403, b"BODY-SECRET"),
        (200, b"BODY-SECRET"),
    ):
        service.answers["validate"].append(answer)
        await ask(lambda one: one.validate("r", KEY, "AUTHORIZATION-SECRET", "s"))
    service.answers["connect"].append((200, GOOD | {"url": "ws://URL-SECRET", "environment_id": "x"}))
    await ask(lambda one: one.connect(KEY))
    service.answers["register"].append((302, {}))
    await ask(lambda one: one.register(KEY))
    assert len(told) == 5
    for text in (*told, caplog.text):
        assert "SECRET" not in text
        assert TOKEN not in text


async def test_credentials_are_asked_for_before_every_question(service: RelayService) -> None:
    tokens = iter(["first", "second"])
    asking = Registry(service.url, ENVIRONMENT, lambda: {"authorization": f"Bearer {next(tokens)}"})
    for _ in range(2):
        with pytest.raises(TokenRefused):
            await asking.register(KEY)
    await asking.aclose()
    assert [asked.headers["authorization"] for asked in service.asked] == ["Bearer first", "Bearer second"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.asymmetric.mlkem", None)
    with pytest.raises(HoldfastError, match="cryptography") as caught:
        registryclient.require_cryptography()
    assert caught.value.remedy == "pip install 'holdfast-agents[remote]'"


@every_row("name", ["127.0.0.1", "localhost"])
async def test_what_is_for_this_machine_goes_by_no_proxy(name: str) -> None:
    """In the clear it would: a proxy reads the credential, and the answer is its own to make up."""
    with pytest.MonkeyPatch.context() as patch:
        async with relay_service() as service, outward_proxy() as proxy:
            proxy.lead(patch)
            service.url = service.url.replace("127.0.0.1", name)
            service.answers["connect"].append((200, GOOD))
            assert (await connect(service)).executor_public_key == KEY
            assert proxy.asked == []


async def test_a_registry_elsewhere_is_asked_by_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with outward_proxy() as proxy:
        proxy.lead(monkeypatch)
        asking = Registry("https://registry.example", ENVIRONMENT, lambda: {"authorization": "SECRET"})
        with pytest.raises(RegistryUnavailable):
            await asking.connect(KEY)
        await asking.aclose()
        assert proxy.asked == ["CONNECT registry.example:443 HTTP/1.1"]
        assert "SECRET" not in "".join(proxy.heads)
