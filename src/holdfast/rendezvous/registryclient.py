"""A client of the registry over HTTP, for an executor or a client.

No redirect is followed: it would carry the credential elsewhere. Nothing of a request or an answer is logged,
since addresses, headers and bodies may all contain credentials. An answer is read up to a bound.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast import decoding, tracing
from holdfast.errors import OperationFailed, ProtocolMismatch, TokenRefused, Unreachable, UsageError
from holdfast.rendezvous.attempts import REQUEST_S
from holdfast.rendezvous.credentials import is_loopback
from holdfast.wire import registry
from holdfast.wire.registry import (
    MAX_ANSWER_BYTES,
    ConnectAnswer,
    ConnectRequest,
    DirectRegisterAnswer,
    DirectRegisterRequest,
    Operation,
    PublicKey,
    RegisterAnswer,
    RegisterRequest,
    RegistryFailure,
    ValidateAnswer,
    ValidateRequest,
)
from holdfast.wire.sigv4 import HttpRequest, Sign

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T", RegisterAnswer, ConnectAnswer, ValidateAnswer, DirectRegisterAnswer)
Headers = Callable[[], Mapping[str, str]]

MAX_ECHO: Final = 200  # characters of the registry's own text in an error
_SPANS: Final[Mapping[Operation, str]] = {
    "register": tracing.REGISTER,
    "connect": tracing.REGISTRY_CONNECT,
    "validate": tracing.REGISTRY_VALIDATE,
    "direct/register": tracing.REGISTER,
}
_REACH: Final = "start the registry, or give its address"


class RegistryUnavailable(Unreachable):
    """The registry did not answer, or failed temporarily: another request may succeed."""

    def __init__(self, message: str, failure: RegistryFailure | None = None) -> None:
        super().__init__(message, remedy=_REACH)
        self.failure = failure


class RegistryRefused(OperationFailed):
    """The registry refused, and would refuse again."""

    def __init__(self, message: str, failure: RegistryFailure) -> None:
        super().__init__(message)
        self.failure = failure


def require_cryptography() -> None:
    """Raises: UsageError: the `cryptography` package that the channel needs is not installed."""
    try:
        import cryptography.hazmat.primitives.asymmetric.mlkem  # noqa: F401
    except ImportError:
        raise UsageError(
            "environments behind a registry need `cryptography` from version 48 on",
            remedy="pip install 'holdfast-agents[remote]'",
        ) from None


class Registry:
    """The registry of one environment. `headers` is called before every request, since credentials rotate.

    With `sign` requests are signed instead: it returns additional headers for a request.
    """

    def __init__(
        self, base_url: str, environment_id: str, headers: Headers = dict, *, sign: Sign | None = None
    ) -> None:
        self.environment_id = environment_id.strip()
        self._base = base_url.strip()
        self._headers = headers
        self._sign = sign
        self._client: httpx2.AsyncClient | None = None

    async def register(self, key: PublicKey) -> RegisterAnswer:
        """Register this executor.

        Raises:
            RegistryUnavailable, RegistryRefused, TokenRefused, ProtocolMismatch: it is not registered.
        """
        asked = RegisterRequest(registry.PROFILE, key)
        answer = await self._ask("register", asked, RegisterAnswer, timeout_s=REQUEST_S)
        if answer.environment_id != self.environment_id:
            raise ProtocolMismatch("the registry answers for another environment")
        return answer

    async def register_directly(self, request_id: str) -> DirectRegisterAnswer:
        """Register this executor to serve the host that the answer names. The id is signed too.

        Raises:
            RegistryUnavailable, RegistryRefused, TokenRefused, ProtocolMismatch: it is not registered.
        """
        asked = DirectRegisterRequest(registry.DIRECT)
        more = {registry.REQUEST_HEADER: request_id}
        answer = await self._ask(
            "direct/register", asked, DirectRegisterAnswer, timeout_s=REQUEST_S, more=more
        )
        if answer.environment_id != self.environment_id:
            raise ProtocolMismatch("the registry answers for another environment")
        return answer

    async def connect(self, key: PublicKey, *, timeout_s: float = REQUEST_S) -> ConnectAnswer:
        """Request what one connection to the executor needs.

        Raises:
            RegistryUnavailable, RegistryRefused, TokenRefused, ProtocolMismatch: there is no connection now,
                or ever.
        """
        answer = await self._ask("connect", ConnectRequest(key), ConnectAnswer, timeout_s=timeout_s)
        if answer.environment_id != self.environment_id:
            raise ProtocolMismatch("the registry answers for another environment")
        texts = (answer.url, answer.executor_registration_id, answer.harness_key_authorization)
        if not all(text.strip() for text in texts):
            raise ProtocolMismatch("the registry leaves out what a connection takes")
        return answer

    async def validate(
        self, registration_id: str, key: PublicKey, authorization: str, stream_id: str
    ) -> bool:
        """Return whether the holder of this key and authorization is admitted. Only an explicit yes admits.

        Raises:
            RegistryUnavailable, RegistryRefused, TokenRefused, ProtocolMismatch: there is no answer, so it is
                not admitted.
        """
        asked = ValidateRequest(registration_id, key, authorization)
        more = {registry.STREAM_HEADER: stream_id}
        answer = await self._ask("validate", asked, ValidateAnswer, timeout_s=REQUEST_S, more=more)
        return answer.valid

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _ask(
        self,
        operation: Operation,
        asked: msgspec.Struct,
        answered: type[T],
        *,
        timeout_s: float,
        more: Mapping[str, str] | None = None,
    ) -> T:
        with tracing.client_span(_SPANS[operation]):
            return await self._ask_once(operation, asked, answered, timeout_s, more or {})

    async def _ask_once(
        self,
        operation: Operation,
        asked: msgspec.Struct,
        answered: type[T],
        timeout_s: float,
        more: Mapping[str, str],
    ) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                status, body = await self._post(operation, msgspec.json.encode(asked), more)
        except TimeoutError:
            raise RegistryUnavailable(f"the registry did not answer within {timeout_s:.3g} s") from None
        if not 200 <= status < 300:
            raise _refusal(operation, status, body)
        try:
            return decoding.decode(body, answered)
        except msgspec.DecodeError:  # its text may quote the answer
            raise ProtocolMismatch(f"the registry's answer to {operation} makes no sense") from None

    async def _post(self, operation: Operation, body: bytes, more: Mapping[str, str]) -> tuple[int, bytes]:
        import httpx2

        client = self._client = self._client or await self._open()
        headers = {"content-type": "application/json", **self._headers(), **more, **tracing.headers()}
        url = registry.url_of(self._base, self.environment_id, operation)
        received = bytearray()
        try:
            request = client.build_request("POST", url, content=body, headers=headers)
            if self._sign is not None:
                request.headers.update(await self._sign(_to_sign(request, body)))
            response = await client.send(request, stream=True)
            async with contextlib.aclosing(response):
                async for chunk in response.aiter_raw():
                    received += chunk
                    if len(received) > MAX_ANSWER_BYTES:
                        raise ProtocolMismatch(f"the registry's answer to {operation} has no end")
                return response.status_code, bytes(received)
        except httpx2.TransportError:  # its text may name the address
            raise RegistryUnavailable("the registry cannot be reached") from None
        except (httpx2.InvalidURL, ValueError):
            raise UsageError("this is no address of a registry") from None

    async def _open(self) -> "httpx2.AsyncClient":
        import httpx2

        for name in ("httpx2", "httpcore2"):  # these libraries log addresses and headers of answers
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        verify: bool | object = False
        if self._base.startswith("https:"):
            verify = await asyncio.get_running_loop().run_in_executor(None, httpx2.create_ssl_context)
        standing = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "holdfast"}
        return httpx2.AsyncClient(
            headers=standing,
            verify=verify,  # type: ignore[arg-type]  # without TLS there is nothing to verify
            timeout=None,  # `_ask` limits the whole request
            follow_redirects=False,
            trust_env=not is_loopback(self._base),  # a proxy could read requests for this machine
        )


def _to_sign(request: "httpx2.Request", body: bytes) -> HttpRequest:
    """The request as sent, with the headers that the reference signs, and an id."""
    names = ("content-type", "host", registry.REQUEST_HEADER)
    shown = tuple((name, request.headers[name]) for name in names if name in request.headers)
    return HttpRequest(request.method, request.url.raw_path.decode("ascii"), shown, body)


def _refusal(operation: Operation, status: int, body: bytes) -> Exception:
    """Convert a status other than 2xx. The body of `validate` may echo a secret and is not shown."""
    failure = registry.read_failure(status, body)
    if operation == "validate":
        failure = RegistryFailure(status, failure.code, "the registry does not say whether")
    words = failure.message[:MAX_ECHO]
    if status in (401, 403):
        return TokenRefused(
            f"the registry refused the credential (HTTP {status}): {words}",
            remedy="give the token of this registry",
        )
    said = f"the registry refused to {operation} (HTTP {status}{f', {failure.code}' if failure.code else ''})"
    if registry.may_pass(status, failure.code):
        return RegistryUnavailable(f"{said}: {words}", failure)
    return RegistryRefused(f"{said}: {words}", failure)
