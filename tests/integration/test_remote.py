"""An executor and a client of ours that meet through a registry and a relay."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from holdfast.client.environments import Condition, Environments
from holdfast.client.events import ordering
from holdfast.client.links import noiselink
from holdfast.errors import ConnectionLost, SessionLost, StartupError, TokenRefused, Unreachable
from holdfast.rendezvous import attempts, registryclient, relaysocket
from holdfast.server.remote.agentidentity import AgentIdentity, AgentLogin
from holdfast.wire import relayframes
from holdfast.wire.registry import AUTHENTICATION_DOWN
from holdfast.wire.relayframes import Body, RelayFrame
from tests.support import logins
from tests.support.certificates import Certified, certify
from tests.support.outwardproxy import outward_proxy, pass_on
from tests.support.peer import descendants_named, fresh_mark, seen_running
from tests.support.relayservice import (
    WAIT_S,
    Direction,
    RelayService,
    Tamper,
    executing,
    reached,
    relay_service,
    variables,
)
from tests.support.rows import every_row

T = TypeVar("T")
TICKS = ["/bin/sh", "-c", "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo tick-$i; sleep 0.005; done"]
TICKED = b"".join(b"tick-%d\n" % number for number in range(1, 41))


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a delay whose length another one checks."""
    monkeypatch.setattr(attempts, "_REDIAL_S", (0.02,))
    monkeypatch.setattr(attempts, "_REGISTER_S", (0.02,))
    monkeypatch.setattr(attempts, "_CONNECT_S", (0.02,))


@pytest.fixture
async def service() -> AsyncIterator[RelayService]:
    async with relay_service() as service:
        yield service


@contextlib.asynccontextmanager
async def named(service: RelayService) -> AsyncIterator[Environments]:
    async with Environments.load(environ=variables(service)) as environments:
        yield environments


async def insisting(call: Callable[[], Awaitable[T]]) -> T:
    """A call that was under way when its link ended is not repeated by the client; here it may be."""
    while True:
        with contextlib.suppress(ConnectionLost):
            return await call()


# --- what it is for


async def test_a_command_runs_through_a_relay_that_reads_nothing_of_it(service: RelayService) -> None:
    async with executing(service), reached(service) as environment:
        result = await environment.run(["/bin/sh", "-c", "cat; exit 3"], input=b"unheard-of")
        assert (result.stdout, result.code) == (b"unheard-of", 3)
    carried = b"".join(raw for _, raw in service.seen)
    for word in (b"unheard-of", b"initialize", b"process/start", b"holdfast", b"/bin/sh"):
        assert word not in carried


@contextlib.asynccontextmanager
async def ending_tls(port: int, certified: Certified) -> AsyncIterator[int]:
    """A port where TLS ends, in front of another one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, outer), pass_on(inner, writer))

    context = certified.serving()
    serving: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(
        lambda *streams: serving.append(asyncio.ensure_future(serve(*streams))), "127.0.0.1", 0, ssl=context
    )
    async with server:
        yield server.sockets[0].getsockname()[1]
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*serving)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_executor_and_client_dial_a_relay_elsewhere_by_the_proxy(
    service: RelayService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    """Nobody but the proxy knows the relay's name. The registry is on this machine, and is asked without."""
    service.dial_url = f"{scheme}://relay.invalid:8443"
    certified = certify(tmp_path, ["relay.invalid"])
    monkeypatch.setenv("SSL_CERT_FILE", str(certified.authority))
    plain = urlsplit(service.url).port or 0
    async with (
        ending_tls(plain, certified) as secure,
        outward_proxy({"relay.invalid:8443": plain if scheme == "ws" else secure}) as proxy,
    ):
        proxy.url = proxy.url.replace("http://", "http://me:secret@")
        proxy.lead(monkeypatch)
        async with executing(service), reached(service) as environment:
            assert (await environment.run(["/usr/bin/wc", "-c"], input=bytes(2**20))).stdout == b"1048576\n"
        assert proxy.asked == ["CONNECT relay.invalid:8443 HTTP/1.1"] * 2
        assert all("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in head for head in proxy.heads)


async def test_it_is_told_that_a_proxy_refuses(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with executing(service), outward_proxy() as proxy:
        proxy.lead(monkeypatch)
        service.dial_url = "ws://relay.invalid"
        async with named(service) as environments:
            with pytest.raises(Unreachable, match="the upstream proxy refused the connection"):
                await environments.get()
        assert proxy.asked == ["CONNECT relay.invalid:80 HTTP/1.1"]
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(variable, "invalid")
        async with named(service) as environments:
            with pytest.raises(Unreachable):
                await environments.get()
        assert len(proxy.asked) == 1


async def test_what_is_large_passes_both_ways_and_holds_up_nobody(service: RelayService) -> None:
    async with executing(service), reached(service) as one, reached(service) as other:
        data = bytes(range(256)) * 70_000
        written = asyncio.ensure_future(one.run(["/usr/bin/wc", "-c"], input=data))
        small = await other.run(["/bin/echo", "beside it"])
        assert small.stdout == b"beside it\n"
        assert (await written).stdout.strip() == str(len(data)).encode()
        read = await one.run(["/usr/bin/head", "-c", "20000000", "/dev/zero"], max_output_bytes=2**25)
        assert len(read.stdout) == 20_000_000
    assert max(len(raw) for _, raw in service.seen) < relayframes.MAX_FRAME_BYTES


async def test_the_registry_is_shown_what_it_must_see_and_the_relay_no_credential(
    service: RelayService,
) -> None:
    async with executing(service), reached(service):
        assert [asked.operation for asked in service.asked] == ["register", "connect", "validate"]
        assert all(asked.headers["authorization"] == "Bearer registry-token" for asked in service.asked)
        validate = service.asked[2]
        assert validate.headers["x-codex-noise-stream-id"] == next(iter(service.clients))
        assert validate.body["harness_public_key"] == service.asked[1].body["harness_public_key"]
        for _, headers in service.upgrades:
            assert not {"authorization", "origin", "sec-websocket-extensions"} & set(headers)
        (ours,) = [headers for role, headers in service.upgrades if role == "environment"]
        assert ours["x-request-id"].startswith("req_")


# --- links that end


async def test_a_client_that_is_cut_off_goes_on_where_it_was(service: RelayService) -> None:
    async with executing(service), reached(service) as environment:
        process = await environment.start(["/bin/sh", "-c", "echo begun; read x; echo got-$x"], stdin=True)
        events = aiter(process)
        await anext(events)
        first = next(iter(service.clients))
        service.drop_clients()
        await process.write(b"word\n")
        result = await process.wait()
        assert (result.stdout, result.code) == (b"begun\ngot-word\n", 0)
        assert first not in service.clients
        one, two = (asked.body for asked in service.asked if asked.operation == "connect")
        assert one == two  # a client stays who it is
        assert service.count("register") == 1


async def test_an_executor_that_is_cut_off_dials_the_same_address_and_keeps_its_sessions(
    service: RelayService,
) -> None:
    async with executing(service), reached(service) as environment:
        process = await environment.start(["/bin/sh", "-c", "echo begun; read x; echo got-$x"], stdin=True)
        await anext(aiter(process))
        service.drop_executor()
        await process.write(b"word\n")
        assert (await process.wait()).stdout == b"begun\ngot-word\n"
        assert service.count("register") == 1


@every_row(
    "answer",
    [(401, {}), (403, {}), (404, {}), (500, {}), (502, {}), (302, {}), (200, b"{"), (200, {}),
     (503, {"error": {"code": AUTHENTICATION_DOWN}})],
    ids=range(9),
)  # fmt: skip
async def test_a_registration_that_fails_is_the_end_of_an_executor(answer: tuple[int, object]) -> None:
    async with relay_service() as service:
        service.answers["register"].append(answer)
        with pytest.raises(StartupError, match="registry"):
            async with executing(service):
                pass
        assert len(service.asked) == 1


async def test_a_registration_that_fails_later_is_the_end_of_an_executor_as_well(
    service: RelayService,
) -> None:
    async def be_refused() -> None:
        async with executing(service):
            service.refuse["environment"].append(404)
            service.answers["register"].append((500, {}))
            service.drop_executor()
            await service.until(lambda: service.count("register") == 2)

    with pytest.raises(StartupError, match="HTTP 500"):
        await be_refused()


async def test_a_registry_that_cannot_tell_who_asks_is_asked_again(service: RelayService) -> None:
    service.answers["register"].extend([(502, {"error": {"code": AUTHENTICATION_DOWN}})] * 3)
    async with executing(service):
        assert service.count("register") == 4


async def test_an_agent_registers_a_task_once_and_signs_every_request(service: RelayService) -> None:
    """Its vendor is played by the same server, which gives the answers that it is told to."""
    times = itertools.chain(range(100, 105), [1000])
    identity = AgentIdentity(logins.agent_identity(1000.0, chatgpt_account_is_fedramp=True))
    login = AgentLogin(identity, lambda: next(times), f"{service.url}/accounts")
    service.answers["register"].append((403, {}))
    with pytest.raises(StartupError, match="refuses the agent identity"):
        await login.register_task()
    service.answers["register"].append((200, {"task_id": "task-1"}))
    await login.register_task()
    assert [set(one.body) for one in service.asked] == [{"timestamp", "signature"}] * 2
    first, second = login.headers(), login.headers()
    assert first.pop("authorization") != second.pop("authorization")
    assert first == second == {"chatgpt-account-id": logins.ACCOUNT, "x-openai-fedramp": "true"}
    next(times)
    with pytest.raises(TokenRefused, match="expired"):
        login.headers()


@every_row(("status", "registrations"), [(403, 2), (404, 2), (503, 1), (500, 1)])
async def test_an_executor_registers_again_only_when_its_address_is_refused(
    status: int, registrations: int
) -> None:
    async with relay_service() as service, executing(service):
        service.refuse["environment"].append(status)
        service.drop_executor()
        await service.until(lambda: len(service.upgrades) == 3 and service.executor)
        assert service.count("register") == registrations
        keys = [asked.body["executor_public_key"] for asked in service.asked]
        assert keys == keys[:1] * registrations
        async with reached(service) as environment:
            assert await environment.status() == "ready"


async def test_another_executor_in_its_place_is_noticed_and_the_next_use_is_a_new_session(
    service: RelayService,
) -> None:
    async with named(service) as environments:
        async with executing(service):
            first = await environments.get()
        async with executing(service, seed=bytes(31) + b"\1"):
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(SessionLost, match="another executor"):
                    await first.files.exists("/")
            second = await environments.get()
            assert (await second.run(["/bin/echo", "new"])).stdout == b"new\n"


async def test_a_relay_that_does_not_answer_pings_is_left(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaysocket, "PING_S", 0.05)
    monkeypatch.setattr(relaysocket, "PONG_S", 0.1)
    async with executing(service), reached(service) as environment:
        before = len(service.upgrades)
        service.deaf = True
        await service.until(lambda: len(service.upgrades) > before)
        service.deaf = False
        monkeypatch.undo()
        process = await insisting(lambda: environment.start(["/bin/cat"], stdin=True))
        await process.write(b"hi")  # which is said again on the next link, if this one ends as well


async def test_commands_end_with_their_executor(service: RelayService) -> None:
    mark = fresh_mark()
    async with executing(service), reached(service) as environment:
        await environment.start(["/bin/sleep", mark])
        await seen_running(mark)
        await environment.leave()
    assert descendants_named(mark) == []


# --- who is not let in


async def test_a_client_without_the_right_token_asks_once_and_stays_out(service: RelayService) -> None:
    async with executing(service):
        async with Environments.load(environ=variables(service, token="wrong")) as environments:
            for _ in range(2):
                with pytest.raises(TokenRefused):
                    await environments.get()
            assert environments.readiness()["remote"].condition is Condition.FAILED
        assert service.count("connect") == 1
        assert service.clients == {}


async def test_an_executor_that_is_not_there_is_asked_for_five_times_by_the_same_client(
    service: RelayService,
) -> None:
    async with named(service) as environments:
        with pytest.raises(Unreachable, match="environment_offline"):
            await environments.get()
        bodies = [asked.body for asked in service.asked]
        assert len(bodies) == 5
        assert bodies == bodies[:1] * 5
        async with executing(service):
            assert (await (await environments.get()).run(["/bin/echo", "hi"])).stdout == b"hi\n"
            assert service.asked[6].body == bodies[0]


async def test_whoever_the_registry_does_not_vouch_for_is_not_let_in(service: RelayService) -> None:
    """An answer of the registry that has expired is such a case."""
    async with executing(service), named(service) as environments:
        for answer in ((200, {"valid": False}), (200, {}), (200, {"valid": 1}), (403, {}), (500, b"SECRET")):
            service.answers["validate"].append(answer)
            with pytest.raises(Unreachable, match="Noise relay stream reset"):
                await environments.get()
        assert (await (await environments.get()).run(["/bin/echo", "hi"])).stdout == b"hi\n"


async def test_a_verdict_that_does_not_come_is_a_no(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with executing(service), named(service) as environments:
        monkeypatch.setattr(registryclient, "REQUEST_S", 0.1)
        service.answers["validate"].append(None)
        with pytest.raises(Unreachable, match="Noise relay stream reset"):
            await environments.get()


async def test_a_verdict_that_is_waited_for_holds_up_nobody_else(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registryclient, "REQUEST_S", 600.0)
    monkeypatch.setattr(noiselink, "HANDSHAKE_S", 600.0)
    async with executing(service), named(service) as environments, named(service) as others:
        service.answers["validate"].append(None)
        environments.start()
        await service.until(lambda: service.count("validate") == 1)
        assert (await (await others.get()).run(["/bin/echo", "hi"])).stdout == b"hi\n"
        assert environments.readiness()["remote"].condition is Condition.STARTING


async def test_an_executor_that_does_not_answer_is_given_up(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noiselink, "HANDSHAKE_S", 0.1)
    service.tamper = lambda _direction, frame, raw: [] if frame.body is Body.HANDSHAKE else [raw]
    async with executing(service), named(service) as environments:
        with pytest.raises(Unreachable, match="did not answer"):
            await environments.get()


async def test_a_second_refused_upgrade_is_final(service: RelayService) -> None:
    async with executing(service), named(service) as environments:
        service.refuse["harness"].extend([401, 401])
        with pytest.raises(Unreachable, match="HTTP 401"):
            await environments.get()
        assert service.count("connect") == 2
        service.refuse["harness"].append(403)
        with pytest.raises(Unreachable, match="HTTP 403"):
            await environments.get()
        assert service.count("connect") == 3


# --- a relay that lies


Change = Callable[[RelayFrame, bytes], list[bytes]]


def third(direction: Direction, change: Change) -> Tamper:
    """Do this to the third record from now on."""
    numbers = itertools.count(1)

    def tamper(way: Direction, frame: RelayFrame, raw: bytes) -> list[bytes]:
        due = way == direction and frame.body is Body.DATA and next(numbers) == 3
        return change(frame, raw) if due else [raw]

    return tamper


def with_(frame: RelayFrame, **change: Any) -> bytes:
    return relayframes.encode(dataclasses.replace(frame, **change))


NOTICED: dict[str, Change] = {
    "changed": lambda frame, _: [with_(frame, payload=frame.payload[:-1] + bytes((frame.payload[-1] ^ 1,)))],
    "cut short": lambda frame, _: [with_(frame, payload=frame.payload[:-1])],
    "cut to nothing": lambda frame, _: [with_(frame, payload=b"x")],
    "lengthened": lambda frame, _: [with_(frame, payload=frame.payload + b"x")],
    "far ahead": lambda frame, _: [with_(frame, seq=frame.seq + 65)],
    "said again as the next": lambda frame, raw: [raw, with_(frame, seq=frame.seq + 1)],
    "in place of the next": lambda frame, raw: [with_(frame, seq=frame.seq + 1), raw],
}
NOTICED_BY_CLIENTS: dict[str, Change] = {  # an executor drops what is no frame: its streams are many
    "reset": lambda frame, raw: [raw, relayframes.reset(frame.stream_id, "LIES")],
    "in segments": lambda frame, _: [with_(frame, segment_count=2)],
    "of another version": lambda frame, _: [with_(frame, version=9)],
    "a handshake": lambda frame, _: [relayframes.handshake(frame.stream_id, bytes(3424))],
    "dropped": lambda _frame, _raw: [],
}
NO_LIES: dict[str, Change] = {
    "said twice": lambda _, raw: [raw, raw],
    "with others in between": lambda frame, raw: [relayframes.reset(f"not-{frame.stream_id}", "x"), raw],
    "with what means nothing": lambda frame, raw: [
        relayframes.encode(RelayFrame(frame.stream_id, Body.HEARTBEAT)),
        raw,
        relayframes.resume(frame.stream_id),
        relayframes.encode(RelayFrame(frame.stream_id, Body.ACK)),
    ],
}


@every_row("name", [*NOTICED, *NOTICED_BY_CLIENTS])
async def test_a_lie_about_what_the_executor_said_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client leaves the link, and has the whole output by another one."""
    monkeypatch.setattr(relayframes, "MAX_AHEAD", 2)  # what is missing is noticed when so much came after it
    async with relay_service() as service, executing(service), reached(service) as environment:
        process = await environment.start(TICKS)
        service.tamper = third("down", (NOTICED | NOTICED_BY_CLIENTS)[name])
        result = await process.wait()
        assert (result.stdout, result.code) == (TICKED, 0)
        assert service.count("connect") == 2


@every_row("name", list(NOTICED))
async def test_a_lie_about_what_the_client_said_is_noticed(name: str) -> None:
    """The executor ends the stream, and the client says it again, once."""
    async with relay_service() as service, executing(service), reached(service) as environment:
        process = await environment.start(["/bin/cat"], stdin=True)
        service.tamper = third("up", NOTICED[name])
        words = [b"word-%d\n" % number for number in range(8)]
        for word in words:
            await process.write(word)
        await process.close_stdin()
        assert (await process.wait()).stdout == b"".join(words)
        assert service.count("connect") == 2
        assert service.executor is not None


@every_row("name", list(NO_LIES))
async def test_what_is_no_lie_changes_nothing(name: str) -> None:
    async with relay_service() as service, executing(service), reached(service) as environment:
        process = await environment.start(TICKS)
        service.tamper = third("down", NO_LIES[name])
        assert (await process.wait()).stdout == TICKED
        assert service.count("connect") == 1


@every_row("direction", ["down", "up"])
async def test_a_record_that_is_dropped_is_missed_also_when_nothing_follows_it(
    direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is quiet, so it is looked at; the look, or its answer, shows the gap."""
    monkeypatch.setattr(ordering, "FIRST_LOOK_S", 0.2)
    monkeypatch.setattr(relayframes, "MAX_GAP_S", 0.2)
    lost: list[bytes] = []
    asked: list[bytes] = []

    def lose(way: Direction, frame: RelayFrame, raw: bytes) -> list[bytes]:
        """Down: all until the look. Up: the one word."""
        if frame.body is not Body.DATA:
            return [raw]
        if way == "up":
            asked.append(raw)
        if way != direction or (lost and (way == "up" or len(asked) > 1)):
            return [raw]
        lost.append(raw)
        return []

    async with relay_service() as service, executing(service), reached(service) as environment:
        process = await environment.start(["/bin/sh", "-c", "read x; echo got-$x; exit 3"], stdin=True)
        service.tamper = lose
        async with asyncio.timeout(WAIT_S):
            _, result = await asyncio.gather(process.write(b"word\n"), process.wait())
        assert (result.stdout, result.code) == (b"got-word\n", 3)
        assert lost
        assert service.count("connect") == 2


async def test_records_that_overtake_each_other_are_put_in_order(service: RelayService) -> None:
    kept: list[bytes] = []

    def swap(way: Direction, frame: RelayFrame, raw: bytes) -> list[bytes]:
        """Each pair of records of the executor the other way round."""
        if way == "up" or frame.body is not Body.DATA:
            return [raw]
        kept.append(raw)
        return [] if len(kept) % 2 else [raw, kept[-2]]

    async with executing(service), reached(service) as environment:
        process = await environment.start(TICKS)
        service.tamper = swap
        events = aiter(process)
        for _ in range(3):
            await anext(events)
        service.tamper = lambda _way, _frame, raw: [raw]
        if len(kept) % 2:
            service.clients[relayframes.decode(kept[-1]).stream_id].send(kept[-1])
        assert (await process.wait()).stdout == TICKED
        assert service.count("connect") == 1


async def test_streams_that_are_swapped_are_noticed_by_both(
    service: RelayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayframes, "MAX_AHEAD", 2)
    async with executing(service), reached(service) as one, reached(service) as other:
        processes = [await environment.start(TICKS) for environment in (one, other)]
        first, second = service.clients
        crossed = {first: second, second: first}

        def cross(way: Direction, frame: RelayFrame, raw: bytes) -> list[bytes]:
            swapped = crossed.pop(frame.stream_id, None) if way == "down" else None
            return [raw] if swapped is None else [with_(frame, stream_id=swapped)]

        service.tamper = cross
        for process in processes:
            assert (await process.wait()).stdout == TICKED
        assert service.count("connect") == 4


async def test_a_handshake_that_is_played_again_opens_nothing(service: RelayService) -> None:
    async with executing(service) as executor, reached(service):
        (greeting,) = [raw for way, raw in service.seen if way == "up" and is_a(raw, Body.HANDSHAKE)]
        stream = relayframes.decode(greeting).stream_id
        service.drop_clients()
        await service.until(lambda: service.count("validate") == 2)
        assert service.executor is not None
        service.executor.send(greeting)
        await service.until(lambda: any(is_a(raw, Body.RESET, stream) for _, raw in service.seen))
        assert service.count("validate") == 3
        assert len(executor.sessions) == 1


async def test_the_answer_to_another_handshake_opens_nothing(service: RelayService) -> None:
    async with executing(service), named(service) as environments, reached(service):
        (answer,) = [raw for way, raw in service.seen if way == "down" and is_a(raw, Body.HANDSHAKE)]
        payload = relayframes.decode(answer).payload
        service.tamper = lambda way, frame, raw: [
            with_(frame, payload=payload) if way == "down" and frame.body is Body.HANDSHAKE else raw
        ]
        with pytest.raises(Unreachable, match="the handshake failed"):
            await environments.get()


@every_row("junk", [None, b"\xff", bytes(300_000)], ids=["text", "no frame", "too large"])
async def test_nonsense_from_the_relay_ends_a_clients_link_and_none_of_its_work(junk: bytes | None) -> None:
    async with relay_service() as service, executing(service), reached(service) as environment:
        process = await environment.start(TICKS)
        (client,) = service.clients.values()
        client.send_text(b"hello") if junk is None else client.send(junk)
        assert (await process.wait()).stdout == TICKED
        assert service.count("connect") == 2


async def test_nonsense_from_the_relay_does_not_disturb_an_executor(service: RelayService) -> None:
    async with executing(service), reached(service) as environment:
        process = await environment.start(TICKS)
        assert service.executor is not None
        service.executor.send_text(b"hello")
        for junk in (b"\xff", b"", relayframes.encode(RelayFrame("x", Body.DATA, b"x", version=3))):
            service.executor.send(junk)
        assert (await process.wait()).stdout == TICKED
        assert len(service.upgrades) == 2
        service.executor.send(bytes(300_000))  # more than anybody may send
        await service.until(lambda: len(service.upgrades) == 3)


async def test_a_message_that_is_no_json_ends_its_stream(service: RelayService) -> None:
    async with executing(service), reached(service) as environment:
        link = environment._session._connection.link
        assert link is not None
        link.send(b"{nonsense")
        await service.until(lambda: service.count("validate") == 2)
        assert any(is_a(raw, Body.RESET) for _, raw in service.seen)
        assert (await environment.run(["/bin/echo", "hi"])).stdout == b"hi\n"


def is_a(raw: bytes, body: Body, stream: str | None = None) -> bool:
    frame = relayframes.decode(raw)
    return frame.body is body and stream in (None, frame.stream_id)
