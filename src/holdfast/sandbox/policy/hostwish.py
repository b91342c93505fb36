"""Hosts that a policy names, as they were written: `holdfast.egress` knows what they mean. Pure module."""

from holdfast.annotations import Final
from holdfast.sandbox.values import value


@value
class HostWish:
    """Hosts that may be reached by name while the network is off, as they were written.

    `private`: also where they turn out to be at an address that is not public. `addresses` say where a host
    is to be looked for, instead of asking a name server.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    private: bool = False
    addresses: tuple[tuple[str, str], ...] = ()


NO_HOSTS: Final = HostWish()
