"""`holdfast serve --remote`: from the options to the address where clients find us."""

import os
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.errors import StartupError, UsageError

if TYPE_CHECKING:
    from holdfast.server.edges.address import DirectAddress, RemoteAddress

IDENTITY: Final = "executor.key"  # in the home: created once, so that a client can recognise us
EXIT_ON_STDIN_CLOSE: Final = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"


class AwsWish(NamedTuple):
    """The keys and the service for signatures of the direct transport; None: as the environment says."""

    profile: str | None
    region: str | None
    service: str | None


def choose_transport(
    transport: str, sigv4: bool, profile: str | None, region: str | None, service: str | None
) -> AwsWish | None:
    """How to sign for a host that we dial; None for the relay transport.

    Raises:
        UsageError: the options contradict each other.
    """
    if transport != "direct":
        if sigv4 or profile or region or service:
            raise UsageError("--aws-… is about --remote-transport direct")
        return None
    if not sigv4:
        raise UsageError("--remote-transport direct needs --aws-sigv4: there is no other way to sign")
    return AwsWish(profile, region, service)


def find_direct(
    url: str,
    environment_id: str | None,
    wish: AwsWish,
    *,
    other_credentials: bool,
    exit_on_stdin_close: bool,
    environ: MutableMapping[str, str] = os.environ,
) -> "DirectAddress":
    """Find the registry address, our id there, and the signer. Remove keys from the variables.

    Raises:
        StartupError: an option is invalid.
    """
    from holdfast.server.edges.address import DirectAddress
    from holdfast.server.remote import awskeys

    if other_credentials:
        raise StartupError("the direct transport signs with AWS keys and takes no token")
    name = _check(url, environment_id)
    signer = awskeys.find(wish.profile, wish.region, wish.service or awskeys.SERVICE, environ)
    return DirectAddress(url.strip(), name, signer.sign, _exits(exit_on_stdin_close, environ))


def find_address(
    url: str,
    environment_id: str | None,
    token_file_text: str | None,
    *,
    credential_stdin: bool,
    exit_on_stdin_close: bool,
    agent_identity: bool = False,
    home: Path | None = None,
    environ: MutableMapping[str, str] = os.environ,
) -> "RemoteAddress":
    """The registry address, our id there, and the credential. A token in a variable is removed from there.

    Without a token it is the Codex CLI's login, if that may be sent to this registry.

    Raises:
        StartupError: an option is invalid.
    """
    from holdfast.home import default_home
    from holdfast.local import homekey
    from holdfast.server.edges.address import RemoteAddress
    from holdfast.server.remote.agentidentity import find_identity
    from holdfast.server.remote.credential import CredentialHolder, Shown, choose, is_given
    from holdfast.server.remote.login import find_login

    name = _check(url, environment_id)
    if [credential_stdin, token_file_text is not None, agent_identity].count(True) > 1:
        raise StartupError("a token comes from a file, by standard input or as an identity, not by both")
    shown: Shown | None = None
    if agent_identity:
        shown = find_identity(url, environ, time.time)
    elif credential_stdin:
        shown = CredentialHolder(name, time.time)
    elif not is_given(token_file_text, environ):
        shown = find_login(url, environ, time.time)
    if shown is None:
        first, variable = choose(url, token_file_text, environ)
        shown = CredentialHolder(name, time.time, first)
        if variable is not None:
            environ.pop(variable)  # commands that run here must not inherit it
    return RemoteAddress(
        url.strip(),
        name,
        shown,
        homekey.load(home or default_home(environ), IDENTITY),
        from_stdin=credential_stdin,
        exit_on_stdin_close=_exits(exit_on_stdin_close, environ),
    )


def _check(url: str, environment_id: str | None) -> str:
    """The id, if it can be registered at this registry. Raises: StartupError."""
    from holdfast.rendezvous.credentials import check_registry
    from holdfast.rendezvous.registryclient import require_cryptography

    if environment_id is None:
        raise StartupError("--remote needs --environment-id", remedy="give the id that clients ask for")
    try:
        check_registry(url, environment_id)
        require_cryptography()
    except UsageError as exc:
        raise StartupError(str(exc), remedy=exc.remedy) from None
    return environment_id.strip()


def _exits(asked: bool, environ: MutableMapping[str, str]) -> bool:
    return asked or bool(environ.get(EXIT_ON_STDIN_CLOSE))
