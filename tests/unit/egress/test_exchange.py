"""Requests that are read and written anew, on streams that never make anybody wait."""

import h11

from holdfast.egress.exchange import Leg, Passing, exchange, keep_headers, serve_requests


class Ready:
    """A stream that has all it says at once."""

    def __init__(self, *said: bytes) -> None:
        self._said = list(said)
        self.heard = b""

    async def receive(self) -> bytes:
        return self._said.pop(0) if self._said else b""

    async def send(self, data: bytes) -> None:
        self.heard += data

    def cut(self) -> None:
        self._said.clear()


async def test_a_host_that_answers_at_once_does_not_cost_the_next_request() -> None:
    """Nothing waits here: whoever passes the request on must have a turn before its answer has ended."""
    near = Ready(
        b"".join(f"POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi".encode() for n in (1, 2))
    )
    leg = Leg(near, h11.SERVER)
    hosts: list[Ready] = []

    async def answer(request: h11.Request) -> bool:
        hosts.append(Ready(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
        far = Leg(hosts[-1], h11.CLIENT)
        head = h11.Request(
            method=request.method, target=request.target, headers=[(b"Host", b"a"), *keep_headers(request)]
        )
        await far.send(head)
        await exchange(leg, far, Passing())
        return True

    await serve_requests(leg, answer)
    assert near.heard.count(b"200 OK") == 2
    assert [host.heard[-2:] for host in hosts] == [b"hi", b"hi"]
