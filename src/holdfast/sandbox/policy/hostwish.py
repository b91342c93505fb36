"""Hosts that a policy names, as they were written: `holdfast.egress` knows what they mean. Pure module."""

from holdfast.annotations import Final
from holdfast.sandbox.values import value

ASK_S: Final = 60.0  # a person reads a question and answers it
_MAX_NAME, _MAX_LABEL = 253, 63
_DIGITS: Final = frozenset("0123456789")
_HERE: Final = ("127.0.0.1", "localhost", "[::1]")  # as a rule names the host's loopback
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") | _DIGITS


@value
class HostWish:
    """Hosts that may be reached by name while the network is off, as they were written.

    `private`: also where they turn out to be at an address that is not public. `addresses` say where a host
    is to be looked for, instead of asking a name server. `secrets` are keys that stay outside
    (`secretwish.py`). `own` are names that may be at such an address although the others may not: whoever
    started the command chose them as its provider. With `ask_s`, somebody is asked about hosts that no rule
    decides about, and has so many seconds.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    private: bool = False
    addresses: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    ask_s: float = 0.0

    @property
    def reaches_any(self) -> bool:
        """Whether a host may be reached, now or once somebody allows it."""
        return bool(self.allow) or self.ask_s > 0


NO_HOSTS: Final = HostWish()


def is_plain(rule: str) -> bool:
    """Whether a rule is one beyond doubt: letters, digits and hyphens between dots, a number behind a colon.

    Whoever is in a hurry need not ask what it means; every other rule may be one too.
    """
    name, colon, port = rule.removeprefix("**.").removeprefix("*.").partition(":")
    labels = name.split(".")
    return (
        len(name) <= _MAX_NAME
        and all(label and len(label) <= _MAX_LABEL and _LETTERS.issuperset(label) for label in labels)
        and not any(label.startswith("-") or label.endswith("-") for label in labels)
        and not labels[-1][0].isdigit()
        and (not colon or (_DIGITS.issuperset(port) and 0 < len(port) < 6 and 0 < int(port) < 1 << 16))
    )


def find_loopback_ports(wish: HostWish) -> tuple[int, ...]:
    """Ports of the host's own loopback among the allowed: a rule with its address or `localhost`, and a port.

    Nobody asks a name server about those, so each has a listener from the beginning.
    """
    found = []
    for rule in wish.allow:
        name, _, port = rule.rpartition(":")
        denied = {name, rule} & {*wish.deny}
        if name.lower() in _HERE and _DIGITS.issuperset(port) and 0 < len(port) < 6 and not denied:
            found.append(int(port))
    return tuple(sorted({port for port in found if 0 < port < 1 << 16}))
