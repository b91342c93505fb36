"""Who may connect: with a token, or without one by the kernel's word on who is calling.

Loads no event loop: the first connection may come before there is one.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import PeerRefused
from holdfast.local import confinement, peers
from holdfast.local.confinement import HasOptions

if TYPE_CHECKING:
    from holdfast.server.edges.auth import Authenticator

_ONLY_OWNER: Final = "only the user who runs this server may connect without a token"


def check_owner(own: Any, peer: Any) -> peers.PeerSocket:
    """The socket at the other end of a connection on loopback, by both addresses of it.

    Raises:
        PeerRefused: it is not our own user's, or is gone.
    """
    found = None if peer is None else peers.socket_of_peer(own, peer)  # None: it was reset meanwhile
    if found is None or not peers.is_allowed(found.uid, own=os.getuid()):
        raise PeerRefused(_ONLY_OWNER)
    return found


def check(authenticator: "Authenticator | None", authorization: str | None, own: Any, peer: Any) -> None:
    """By its token where one is demanded; else our own user must be there, and nobody more confined than we.

    Raises:
        PeerRefused: it may not come in.
    """
    if authenticator is not None:
        authenticator.check(authorization, time.time())
        return
    found = check_owner(own, peer)
    confinement.refuse_confined(confinement.find_excess_of_holders(found.inode, found.uid))


def check_unix_peer(sock: HasOptions) -> None:
    """The same, for a unix socket."""
    if not peers.is_allowed(peers.uid_of_unix_peer(sock), own=os.getuid()):
        raise PeerRefused(_ONLY_OWNER)
    confinement.refuse_confined(confinement.find_excess_of_unix_peer(sock))
