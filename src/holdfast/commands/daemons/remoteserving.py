"""`holdfast serve --remote`: from what was typed to where we are found."""

import os
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import StartupError, UsageError

if TYPE_CHECKING:
    from holdfast.server.edges.address import RemoteAddress

IDENTITY: Final = "executor.key"  # in the home: made once, so that a client can tell us from another
EXIT_ON_STDIN_CLOSE: Final = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"


def find_address(
    url: str,
    environment_id: str | None,
    token_file_text: str | None,
    *,
    credential_stdin: bool,
    exit_on_stdin_close: bool,
    home: Path | None = None,
    environ: MutableMapping[str, str] = os.environ,
) -> "RemoteAddress":
    """Where to register, as whom, and with what. A token that came by a variable is taken out of there.

    Raises:
        StartupError: something of it makes no sense.
    """
    from holdfast.home import default_home
    from holdfast.local import homekey
    from holdfast.rendezvous.credentials import check_registry
    from holdfast.rendezvous.registryclient import require_cryptography
    from holdfast.server.edges.address import RemoteAddress
    from holdfast.server.remote.credential import CredentialHolder, choose

    if environment_id is None:
        raise StartupError("--remote needs --environment-id", remedy="give the id that clients ask for")
    if credential_stdin and token_file_text is not None:
        raise StartupError("a token comes from a file or by standard input, not by both")
    try:
        check_registry(url, environment_id)
        require_cryptography()
    except UsageError as exc:
        raise StartupError(str(exc), remedy=exc.remedy) from None
    first = None
    if not credential_stdin:
        first, variable = choose(url, token_file_text, environ)
        if variable is not None:
            environ.pop(variable)  # no command that is run here shall inherit it
    return RemoteAddress(
        url.strip(),
        environment_id.strip(),
        CredentialHolder(environment_id, time.time, first),
        homekey.load(home or default_home(environ), IDENTITY),
        from_stdin=credential_stdin,
        exit_on_stdin_close=exit_on_stdin_close or bool(environ.get(EXIT_ON_STDIN_CLOSE)),
    )
