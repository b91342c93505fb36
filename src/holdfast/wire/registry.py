"""The registry's HTTP API: requests, answers, and the meaning of failures. Pure module.

    POST BASE/cloud/environment/ID/register    an executor registers itself and its key
    POST BASE/cloud/environment/ID/connect     a client requests the executor's address and identity
    POST BASE/cloud/environment/ID/validate    an executor asks whether to admit this client
    POST BASE/cloud/environment/ID/direct/register    an executor registers for a host, without a relay

Both sides trust the registry for each other's keys. An answer to `connect` is valid for one connection. The
repr of a message that may hold a secret has only its name.
"""

from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from holdfast import decoding

SUITE: Final = "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256"
PROFILE: Final = "noise_hybrid_ik_v1"
STREAM_HEADER: Final = "x-codex-noise-stream-id"  # on validate
REQUEST_HEADER: Final = "x-request-id"  # new for every request that has it

MAX_AUTHORIZATION_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 64 * 1024  # of any answer; the largest has one key and some texts
MAX_CODE: Final = 64  # characters of a refusal's code, which is shown
MAX_PREVIEW: Final = 4096  # characters of a body without the agreed error format

OFFLINE: Final = "environment_offline"
AUTHENTICATION_DOWN: Final = "authentication_service_unavailable"

DIRECT: Final = "direct_jsonrpc_v1"

Operation: TypeAlias = Literal["register", "connect", "validate", "direct/register"]
_Profile: TypeAlias = Literal["noise_hybrid_ik_v1"]


class PublicKey(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"x25519": "x25519_public_key", "mlkem768": "mlkem768_public_key"},
):
    """The identity of an executor or a client; on the wire both keys are in base64."""

    suite: Literal["Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256"]
    x25519: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    mlkem768: Annotated[bytes, msgspec.Meta(min_length=1184, max_length=1184)]

    @classmethod
    def of(cls, x25519: bytes, mlkem768: bytes) -> "PublicKey":
        """Create a key of the only suite."""
        return cls(SUITE, x25519, mlkem768)


class _Secretive(msgspec.Struct, frozen=True):
    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> "list[tuple[str, object]]":  # the content of a coloured traceback
        return []


class RegisterRequest(_Secretive, frozen=True):
    security_profile: _Profile
    executor_public_key: PublicKey


class RegisterAnswer(_Secretive, frozen=True):
    """`url` is the executor's rendezvous and admits anyone who knows it."""

    environment_id: str
    url: str
    security_profile: _Profile
    executor_registration_id: str


class DirectRegisterRequest(_Secretive, frozen=True):
    transport: Literal["direct_jsonrpc_v1"]


class DirectRegisterAnswer(_Secretive, frozen=True):
    """`url` is where the executor dials the host that it serves."""

    environment_id: str
    url: str
    transport: Literal["direct_jsonrpc_v1"]
    registration_id: str


class ConnectRequest(_Secretive, frozen=True):
    harness_public_key: PublicKey


class ConnectAnswer(_Secretive, frozen=True):
    """Everything that one connection needs, and only one: the values belong together."""

    environment_id: str
    url: str
    security_profile: _Profile
    executor_registration_id: str
    executor_public_key: PublicKey
    harness_key_authorization: str


class ValidateRequest(_Secretive, frozen=True):
    executor_registration_id: str
    harness_public_key: PublicKey
    harness_key_authorization: str


class ValidateAnswer(_Secretive, frozen=True):
    valid: bool


class RegistryError(_Secretive, frozen=True):
    """Both members are optional; the text is for people."""

    code: str | None = None
    message: str | None = None


class ErrorAnswer(_Secretive, frozen=True):
    """An answer that is not 2xx; the error is under one of two names."""

    error: RegistryError | None = None
    detail: RegistryError | None = None


class RegistryFailure(NamedTuple):
    """The content of an answer that is not 2xx."""

    status: int
    code: str | None
    message: str


def url_of(base: str, environment_id: str, operation: Operation) -> str:
    """The URL of an operation; both parts are used unchanged, except for surrounding space."""
    return f"{base.strip().rstrip('/')}/cloud/environment/{environment_id.strip()}/{operation}"


def read_failure(status: int, body: bytes) -> RegistryFailure:
    """Parse a refusal, whatever its body is."""
    code = message = None
    try:
        answer = decoding.decode(body, ErrorAnswer)
    except msgspec.DecodeError:  # also for JSON of another form
        pass
    else:
        inner = answer.error or answer.detail
        if inner is not None:
            code, message = inner.code and inner.code[:MAX_CODE], inner.message
    preview = body.decode(errors="replace").strip()[:MAX_PREVIEW]
    return RegistryFailure(status, code, message or preview or "the registry gives no reason")


def may_pass(status: int, code: str | None) -> bool:
    """Whether repeating `connect` may help."""
    return status >= 500 or status in (408, 429) or (status == 409 and code == OFFLINE)
