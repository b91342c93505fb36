"""The hosts that a policy names, as written; `holdfast.egress` interprets them. Pure module."""

from holdfast.light import Final, value

ASK_S: Final = 60.0  # seconds for a person to read a question and answer it
ASK_WORKER_S: Final = 600.0  # the same for a worker's question, once the person was notified
_MAX_NAME, _MAX_LABEL = 253, 63
_BYTES: Final = frozenset(map(str, range(256)))
_HERE: Final = ("127.0.0.1", "localhost", "[::1]")  # the names of the host's loopback in a rule


@value
class HostWish:
    """Hosts that may be reached by name while the network is off, as they were written.

    `private`: hosts may also be reached at addresses that are not public. `addresses` give the address of a
    host, which replaces the lookup at a name server. `secrets` are keys that stay outside (`secretwish.py`).
    `own` are names that may have an address that is not public although the others may not: the user who
    started the command chose them as its provider. `presets` name clients whose hosts are still to be found
    (`egress/clients`); `origins` say what the presets resolved to. `limits` bound the traffic
    (`egress/bounds`). With `ask_s`, a person is asked about hosts that no rule decides on, and has that many
    seconds to answer.
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
        """Whether a host may be reached, now or after a person allows it."""
        return bool(self.allow) or self.ask_s > 0


NO_HOSTS: Final = HostWish()


def is_inspected(rule: str) -> bool:
    """Whether a rule is about requests inside of TLS; for such a rule TLS ends at the broker outside."""
    return "https://" in rule


def are_plain(hosts: HostWish) -> bool:
    """Whether all of these rules and addresses are certainly valid, as nearly all are.

    A caller in a hurry can then skip the parser; rules that fail this check may be valid too.
    """
    return (
        not hosts.limits
        and all(map(is_plain, hosts.allow))
        and all(map(is_plain, hosts.deny))
        and all(map(is_plain, hosts.own))
        and all(is_plain(name) and _is_plain_address(at) for name, at in hosts.addresses)
    )


def is_plain(rule: str) -> bool:
    """Whether a rule is certainly valid: letters, digits and hyphens between dots, a number after a colon."""
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
    """Whether the text is four decimal numbers."""
    parts = text.split(".")
    return len(parts) == 4 and all(part in _BYTES for part in parts)


def find_loopback_ports(wish: HostWish) -> tuple[int, ...]:
    """The allowed ports of the host's own loopback: rules with its address or `localhost`, and a port.

    Names of the loopback are not looked up at a name server, so each port has a listener from the beginning.
    """
    found = []
    for rule in wish.allow:
        name, _, port = rule.rpartition(":")
        denied = {name, rule} & {*wish.deny}
        if name.lower() in _HERE and _is_number(port) and not denied:
            found.append(int(port))
    return tuple(sorted({port for port in found if 0 < port < 1 << 16}))
