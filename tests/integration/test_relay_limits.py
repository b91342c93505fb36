"""What a relay refuses to those who ask too often, and what it does not refuse to anybody."""

import asyncio
import ssl
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from holdfast.relay import node as relay_node
from holdfast.relay import store as verbs
from holdfast.relay.registry import Limits
from holdfast.relay.rules.access import Role
from holdfast.relay.rules.ratelimit import Rate
from holdfast.relay.rules.signedurl import HARNESS_S
from tests.integration.test_relay_command import make_certificate
from tests.support.rawrelay import LIMIT_S, relay_under_test


async def test_who_asks_too_often_is_told_so_and_an_executor_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Rate(per_s=0.0001, burst=1)
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch, Limits(once, once, once)) as relay:
        token = relay.add_token("both")
        assert (await relay.register(token)).status == 200
        again = await relay.register(token)
        assert (again.status, again.code) == (502, "authentication_service_unavailable")
        assert (await relay.register(token, "another")).status == 200
        assert [(await relay.connect(token)).status for _ in range(2)] == [409, 429]
        assert [(await relay.register("guess")).status for _ in range(2)] == [401, 502]
        assert (
            await relay.register(token, "third")
        ).status == 200  # who guesses beside it does not lock it out


async def test_a_token_that_was_valid_once_may_be_tried_as_often_as_any_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Rate(per_s=0.0001, burst=1)
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch, Limits(guessing=once)) as relay:
        token = relay.add_token("both")
        assert (await relay.connect(token)).status == 409
        relay.change(lambda tx: verbs.revoke_token(tx, "both"))
        assert [(await relay.connect(token)).status for _ in range(3)] == [401, 429, 429]


async def test_who_asks_for_what_is_not_allowed_asks_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = Rate(per_s=0.0001, burst=2)
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch, Limits(asking=twice)) as relay:
        token = relay.add_token("e", Role.EXECUTOR)
        assert [(await relay.connect(token)).status for _ in range(3)] == [403, 403, 429]


async def test_a_node_whose_clock_is_ahead_of_the_stores_lets_harnesses_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch) as relay:
        token = relay.add_token("both")
        async with relay.executor(token):
            now = HARNESS_S + time.time()
            monkeypatch.setattr(
                relay_node, "time", SimpleNamespace(time=lambda: now, perf_counter=time.perf_counter)
            )
            async with relay.harness(token, "s1"):
                pass


async def test_a_tenant_has_only_so_many_environments_and_keeps_those_it_has(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "MOST_ENVIRONMENTS", 2, raising=False)
    async with relay_under_test(address, monkeypatch) as relay:
        token, other = relay.add_token("both"), relay.add_token("both", tenant="u")
        assert [(await relay.register(token, box)).status for box in ("a", "b")] == [200, 200]
        assert (await relay.register(token, "c")).code == "registration_conflict"
        assert (await relay.register(token, "b", "n")).status == 200
        assert (await relay.register(other, "c")).status == 200


async def test_who_says_nothing_before_tls_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_node, "ASK_S", 0.2)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(make_certificate(tmp_path))
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch, tls=tls) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(relay.url).port)
        try:
            async with asyncio.timeout(LIMIT_S):
                assert await reader.read() == b""
        finally:
            writer.transport.abort()
