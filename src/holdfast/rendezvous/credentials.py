"""Where a credential may be sent, and which characters a header can carry. Pure module."""

import ipaddress
from urllib.parse import urlsplit

from holdfast.errors import UsageError


def is_loopback(url: str) -> bool:
    """Whether this address is on this machine."""
    try:
        return is_this_machine(urlsplit(url.strip()).hostname or "")
    except ValueError:
        return False


def is_this_machine(host: str) -> bool:
    """Whether this name or address refers to this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_registry(url: str, environment_id: str) -> None:
    """Raises: UsageError: the address of the registry or the id of the environment is invalid."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise UsageError("this is no address of a registry") from None
    if parts.username is not None:
        raise UsageError(
            "the address of a registry must not hold a secret", remedy="give the token apart from it"
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError("a registry is at http://… or https://…")
    if parts.scheme != "https" and not is_loopback(url):
        raise UsageError(
            "a registry needs https:// or a loopback address: otherwise the token could be read on the way",
            remedy="use https://, or a tunnel that ends here",
        )
    if not environment_id.strip():
        raise UsageError("an environment behind a registry needs an id")


def check_header(value: str, what: str) -> str:
    """Return the value without surrounding space. Raises: UsageError: no header can carry it."""
    stripped = value.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable():
        raise UsageError(f"{what} is empty, or has characters no header can carry")
    return stripped
