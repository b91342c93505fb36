"""Hosts that a policy names, as they were written: `holdfast.egress` knows what they mean. Pure module."""

from holdfast.light import Final, value

ASK_S: Final = 60.0  # a person reads a question and answers it
ASK_WORKER_S: Final = 600.0  # likewise about a worker, once they have heard of it
_MAX_NAME, _MAX_LABEL = 253, 63
_BYTES: Final = frozenset(map(str, range(256)))
_HERE: Final = ("127.0.0.1", "localhost", "[::1]")  # as a rule names the host's loopback


@value
class HostWish:
    """Hosts that may be reached by name while the network is off, as they were written.

    `private`: also where they turn out to be at an address that is not public. `addresses` say where a host
    is to be looked for, instead of asking a name server. `secrets` are keys that stay outside
    (`secretwish.py`). `own` are names that may be at such an address although the others may not: whoever
    started the command chose them as its provider. `presets` name clients whose hosts are still to be found
    (`egress/clients`), `origins` say what those came to. `limits` are on how much passes (`egress/bounds`).
    With `ask_s`, somebody is asked about hosts that no rule decides about, and has so many seconds.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    private: bool = False
    addresses: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    ask_s: float = 0.0

    @property
    def reaches_any(self) -> bool:
        """Whether a host may be reached, now or once somebody allows it."""
        return bool(self.allow) or self.ask_s > 0


NO_HOSTS: Final = HostWish()


def is_inspected(rule: str) -> bool:
    """Whether a rule is about requests inside of TLS, which is ended outside for that."""
    return "https://" in rule


def are_plain(hosts: HostWish) -> bool:
    """Whether all of these are rules and addresses beyond doubt, as nearly all are.

    Whoever is in a hurry need not ask then what they mean; others may make sense too.
    """
    return (
        not hosts.limits
        and all(map(is_plain, hosts.allow))
        and all(map(is_plain, hosts.deny))
        and all(map(is_plain, hosts.own))
        and all(is_plain(name) and _is_plain_address(at) for name, at in hosts.addresses)
    )


def is_plain(rule: str) -> bool:
    """Whether a rule is one beyond doubt: letters, digits, hyphens between dots, a number behind a colon."""
    name, colon, port = rule.removeprefix("**.").removeprefix("*.").partition(":")
    edges = f".{name}."
    return (
        name.isascii()
        and len(name) <= _MAX_NAME
        and (len(name) <= _MAX_LABEL or max(map(len, name.split("."))) <= _MAX_LABEL)
        and name.replace("-", "").replace(".", "").isalnum()
        and not (".." in edges or ".-" in edges or "-." in edges)
        and not name[name.rfind(".") + 1].isdigit()
        and (not colon or (_is_number(port) and 0 < int(port) < 1 << 16))
    )


def _is_number(port: str) -> bool:
    return port.isascii() and port.isdigit() and len(port) < 6


def _is_plain_address(text: str) -> bool:
    """Four decimal numbers."""
    parts = text.split(".")
    return len(parts) == 4 and all(part in _BYTES for part in parts)


def find_loopback_ports(wish: HostWish) -> tuple[int, ...]:
    """Ports of the host's own loopback among the allowed: a rule with its address or `localhost`, and a port.

    Nobody asks a name server about those, so each has a listener from the beginning.
    """
    found = []
    for rule in wish.allow:
        name, _, port = rule.rpartition(":")
        denied = {name, rule} & {*wish.deny}
        if name.lower() in _HERE and _is_number(port) and not denied:
            found.append(int(port))
    return tuple(sorted({port for port in found if 0 < port < 1 << 16}))
