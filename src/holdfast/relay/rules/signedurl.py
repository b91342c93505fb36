"""Signed addresses of the rendezvous: they authorize by themselves, neither end sends a token. Pure module.

…/ws/environment/ID?v=1&role=environment&tenant=T&reg=R&exp=E&sig=S     for an executor, for a day
…/ws/environment/ID?v=1&role=harness&tenant=T&reg=R&id=A&exp=E&sig=S    for a harness, once and for a minute

The signature covers the path and everything before it in the query, in exactly this order. An executor dials
the same address repeatedly. After a 4xx it registers again, which requires its token.
"""

import base64
import binascii
import hmac
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from holdfast.relay.rules.messages import ENVIRONMENT

PREFIX: Final = "/ws/environment/"
EXECUTOR_ROLE: Final = "environment"
HARNESS_ROLE: Final = "harness"
VERSION: Final = "1"
EXECUTOR_S: Final = 24 * 3600  # then the executor's token is checked again, unless its socket is open
HARNESS_S: Final = 60  # to dial and to be validated: both take seconds
SKEW_S: Final = 300  # how far a node's clock may be ahead of the store's, which decides about a bundle
KEY_BYTES: Final = 32

_PARAMETERS: Final = {
    EXECUTOR_ROLE: ("v", "role", "tenant", "reg", "exp", "sig"),
    HARNESS_ROLE: ("v", "role", "tenant", "reg", "id", "exp", "sig"),
}
_DIGITS: Final = re.compile(r"[0-9]{1,12}")


class Claim(NamedTuple):
    """The content of a signed address. `id` is that of a harness's bundle."""

    environment: str
    role: str
    tenant: str
    registration: str
    expires: int
    id: str = ""


class Rejected(NamedTuple):
    """Why an address is rejected, as a code of the reference."""

    code: str


def sign(claim: Claim, key: bytes) -> str:
    """Create the path and query of an address."""
    values = {
        "v": VERSION,
        "role": claim.role,
        "tenant": claim.tenant,
        "reg": claim.registration,
        "id": claim.id,
        "exp": str(claim.expires),
    }
    names = _PARAMETERS[claim.role][:-1]
    signed = f"{PREFIX}{claim.environment}?{urlencode([(name, values[name]) for name in names])}"
    return f"{signed}&sig={_signature(signed, key)}"


def verify(path: str, query: str, key: bytes, now: float) -> Claim | Rejected:
    """Return the claim of an address that we have signed and that has not expired."""
    environment = path.removeprefix(PREFIX)
    if not path.startswith(PREFIX) or not ENVIRONMENT.fullmatch(environment):
        return Rejected("unknown_route")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=16)
    except ValueError:
        return Rejected("malformed_query")
    values = dict(pairs)
    fault = _find_fault(values, [name for name, _ in pairs])
    if fault is not None:
        return Rejected(fault)
    signed, _, signature = query.rpartition("&sig=")
    if not hmac.compare_digest(signature.encode(), _signature(f"{path}?{signed}", key).encode()):
        return Rejected("invalid_signature")
    skew = SKEW_S if values["role"] == HARNESS_ROLE else 0
    if int(values["exp"]) + skew <= now:
        return Rejected("expired")
    return Claim(
        environment, values["role"], values["tenant"], values["reg"], int(values["exp"]), values.get("id", "")
    )


def _find_fault(values: dict[str, str], names: list[str]) -> str | None:
    """The first fault found; the order is the specification."""
    for name, code in (("v", "missing_version"), ("role", "missing_role")):
        if not values.get(name):
            return code
    if values["v"] != VERSION:
        return "missing_version"
    if values["role"] not in _PARAMETERS:
        return "invalid_role"
    for name, code in (("sig", "missing_signature"), ("exp", "missing_expiry")):
        if not values.get(name):
            return code
    if not _DIGITS.fullmatch(values["exp"]):
        return "invalid_expiry"
    wanted = _PARAMETERS[values["role"]]
    if set(names) - set(wanted):
        return "extra_query_param"
    return None if tuple(names) == wanted else "malformed_query"


def _signature(signed: str, key: bytes) -> str:
    mac = hmac.digest(key, signed.encode(), "sha256")
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def decode_key(text: str) -> bytes:
    """Decode the key from its form in the store."""
    return binascii.unhexlify(text)
