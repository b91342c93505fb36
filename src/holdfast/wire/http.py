"""Messages about HTTP requests made by the executor. Pure module."""

from typing import Literal

from holdfast.wire.structs import U64, MethodResult, Params


class HttpHeader(Params, frozen=True):
    name: str
    value: str
    value_env_var: str | None = None


class HttpRequestParams(Params, frozen=True):
    method: str
    url: str
    request_id: str
    headers: list[HttpHeader] = []
    body_base64: bytes | None = None
    timeout_ms: U64 | None = None
    redirect_policy: Literal["follow", "stop"] = "follow"
    stream_response: bool = False


class HttpHeaderResult(MethodResult, frozen=True):
    name: str
    value: str


class HttpResponse(MethodResult, frozen=True):
    status: int
    headers: list[HttpHeaderResult]
    body_base64: bytes


class BodyDelta(MethodResult, frozen=True):
    request_id: str
    seq: int
    delta_base64: bytes
    done: bool
    error: str | None = None
