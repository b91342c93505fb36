"""HTTP over a session that answers what the test says."""

import asyncio
import base64
from typing import Any

import pytest

from holdfast.client.http import (
    MAX_DELTA_BYTES,
    MAX_DELTAS,
    MAX_WAITING_BYTES,
    Http,
    Response,
    StreamedResponse,
)
from holdfast.errors import ConnectionLost, HoldfastError, OperationFailed, RemoteProtocolError, UsageError
from tests.support.caller import FakeCaller
from tests.support.patience import patient

HEAD: dict[str, Any] = {
    "status": 200,
    "headers": [
        {"name": "x-a", "value": "1"},
        {"name": "x-a", "value": "2"},
        {"name": "content-type", "value": "text/plain"},
    ],
    "bodyBase64": "",
}
URL = "http://example/"


def delta(seq: int, data: bytes = b"", *, request: str = "http-1", **more: object) -> dict[str, Any]:
    body = {"requestId": request, "seq": seq, "deltaBase64": base64.b64encode(data).decode()}
    return {**body, "done": False, "error": None, **more}


class Server(FakeCaller):
    def __init__(self) -> None:
        super().__init__(http_request=HEAD)

    def send(self, *deltas: dict[str, Any]) -> None:
        for one in deltas:
            self.push("http/request/bodyDelta", one)


async def drained(response: StreamedResponse) -> tuple[list[bytes], HoldfastError | None]:
    """The pieces, and the error that ended them."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(patient(5)):
            async for piece in response:
                pieces += [piece]  # one by one: what came before an error counts
    except HoldfastError as exc:
        return pieces, exc
    return pieces, None


async def test_a_request_is_one_exchange() -> None:
    caller = FakeCaller(http_request={**HEAD, "status": 404, "bodyBase64": "aGk=", "later": 1})
    http = Http(caller)
    response = await http.request(
        "POST", URL, headers={"Accept": "*/*"}, content=b"body", timeout_s=1.5, follow_redirects=False
    )
    pairs = (("x-a", "1"), ("x-a", "2"), ("content-type", "text/plain"))
    assert response == Response(404, pairs, b"hi")
    assert (response.header("X-A"), response.header("x-b")) == ("1", None)
    assert caller.sent("http/request") == [
        {
            "method": "POST",
            "url": URL,
            "requestId": "http-1",
            "headers": [{"name": "Accept", "value": "*/*", "valueEnvVar": None}],
            "bodyBase64": "Ym9keQ==",
            "timeoutMs": 1500,
            "redirectPolicy": "stop",
            "streamResponse": False,
        }
    ]


async def test_headers_may_repeat_and_every_request_has_its_own_number() -> None:
    caller = Server()
    http = Http(caller)
    await http.request("GET", URL, headers=[("a", "1"), ("a", "2")])
    async with http.stream("GET", URL):
        pass
    first, second = caller.sent("http/request")
    assert [header["value"] for header in first["headers"]] == ["1", "2"]
    assert (first["requestId"], second["requestId"]) == ("http-1", "http-2")
    assert (first["streamResponse"], second["streamResponse"]) == (False, True)
    assert first["timeoutMs"] is None


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), float("inf")])
async def test_a_time_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(UsageError):
        await Http(Server()).request("GET", URL, timeout_s=timeout_s)


async def test_a_body_arrives_piece_by_piece_and_may_end_with_data() -> None:
    caller = Server()
    async with Http(caller).stream("GET", URL) as response:
        assert (response.status, response.header("content-type")) == (200, "text/plain")
        reading = asyncio.ensure_future(drained(response))
        await asyncio.sleep(0)
        caller.send(delta(1, b"a"), delta(2), delta(3, b"b", done=True))
        assert await reading == ([b"a", b"b"], None)
        assert await drained(response) == ([], None)


async def test_a_piece_that_overtakes_the_answer_is_kept() -> None:
    def early(params: dict[str, Any]) -> object:
        caller.send(delta(1, b"early", done=True))
        return HEAD

    caller = Server()
    caller.answers["http/request"] = early
    async with Http(caller).stream("GET", URL) as response:
        assert await drained(response) == ([b"early"], None)


async def test_pieces_of_streams_that_nobody_reads_are_ignored() -> None:
    caller = Server()
    http = Http(caller)
    caller.send(delta(1, b"x", request="http-9"))
    async with http.stream("GET", URL):
        caller.send(delta(1, b"x"))
    caller.send(delta(2, b"x"))
    async with http.stream("GET", URL) as response:
        caller.send(delta(1, b"y", request="http-2", done=True), delta(2, b"late", request="http-2"))
        assert await drained(response) == ([b"y"], None)


async def test_a_request_that_fails_leaves_nothing_behind() -> None:
    caller = FakeCaller(http_request=OperationFailed("no route"))
    http = Http(caller)
    with pytest.raises(OperationFailed):
        async with http.stream("GET", URL):
            raise AssertionError("there is no response")
    caller.push("http/request/bodyDelta", delta(7, b"x"))


async def test_a_missing_piece_ends_the_body_with_an_error() -> None:
    caller = Server()
    async with Http(caller).stream("GET", URL) as response:
        caller.send(delta(1, b"a"), delta(3, b"c"), delta(2, b"b"))
        pieces, error = await drained(response)
    assert pieces == [b"a"]
    assert isinstance(error, RemoteProtocolError)


async def test_an_error_of_the_server_comes_after_what_was_received() -> None:
    caller = Server()
    async with Http(caller).stream("GET", URL) as response:
        caller.send(delta(1, b"a"), delta(2, done=True, error="error decoding response body"))
        pieces, error = await drained(response)
    assert pieces == [b"a"]
    assert isinstance(error, OperationFailed)


async def test_a_lost_link_ends_every_body_and_none_goes_on() -> None:
    caller = Server()
    http = Http(caller)
    async with http.stream("GET", URL) as one, http.stream("GET", URL) as two:
        caller.send(delta(1, b"a"))
        waiting = asyncio.ensure_future(drained(two))
        await asyncio.sleep(0)
        caller.lose(ConnectionLost("reset"))
        caller.send(delta(2, b"b"), delta(1, b"b", request="http-2"))
        for pieces, error in (await drained(one), await waiting):
            assert isinstance(error, ConnectionLost)
            assert pieces in ([b"a"], [])


async def test_a_body_that_is_not_read_is_kept_up_to_a_number_of_pieces() -> None:
    caller = Server()
    async with Http(caller).stream("GET", URL) as response:
        caller.send(*(delta(seq, b"x") for seq in range(1, MAX_DELTAS + 2)))
        pieces, error = await drained(response)
    assert pieces == [b"x"] * MAX_DELTAS
    assert isinstance(error, OperationFailed)


async def test_all_bodies_together_are_kept_up_to_a_number_of_bytes() -> None:
    caller = Server()
    http = Http(caller)
    full = MAX_WAITING_BYTES // MAX_DELTA_BYTES
    piece = b"x" * MAX_DELTA_BYTES
    async with http.stream("GET", URL) as one:
        caller.send(*(delta(seq, piece) for seq in range(1, full + 1)))
        async with http.stream("GET", URL) as two:
            caller.send(delta(1, b"y", request="http-2"))
            assert isinstance((await drained(two))[1], OperationFailed)
        caller.send(delta(full + 1, b"", done=True))
        assert await drained(one) == ([piece] * full, None)
    async with http.stream("GET", URL):
        caller.send(*(delta(seq, piece, request="http-3") for seq in range(1, full + 1)))
    async with http.stream("GET", URL) as response:  # what nobody took does not count any more
        caller.send(delta(1, piece, request="http-4", done=True))
        assert await drained(response) == ([piece], None)


async def test_an_oversized_piece_or_one_of_another_shape_is_no_message_of_this_protocol() -> None:
    caller = Server()
    async with Http(caller).stream("GET", URL):
        for params in (delta(1, b"x" * (MAX_DELTA_BYTES + 3)), {"requestId": 1}, None):
            with pytest.raises(RemoteProtocolError):
                caller.push("http/request/bodyDelta", params)
        caller.send(delta(1, b"x" * MAX_DELTA_BYTES))


async def test_a_body_cannot_be_read_after_its_block() -> None:
    caller = Server()
    async with Http(caller).stream("GET", URL) as response:
        caller.send(delta(1, b"x"))
    pieces, error = await drained(response)
    assert pieces == []
    assert isinstance(error, UsageError)
