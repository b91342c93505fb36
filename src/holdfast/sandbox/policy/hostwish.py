"""Hosts that a policy names, as they were written: `holdfast.egress` knows what they mean. Pure module."""

from holdfast.annotations import Final
from holdfast.sandbox.values import value

ASK_S: Final = 60.0  # a person reads a question and answers it
_MAX_NAME, _MAX_LABEL = 253, 63
_DIGITS: Final = frozenset("0123456789")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") | _DIGITS


@value
class HostWish:
    """Hosts that may be reached by name while the network is off, as they were written.

    `private`: also where they turn out to be at an address that is not public. `addresses` say where a host
    is to be looked for, instead of asking a name server. `secrets` are keys that stay outside
    (`secretwish.py`). With `ask_s`, somebody is asked about hosts that no rule decides about, and has so many
    seconds.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    private: bool = False
    addresses: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
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
