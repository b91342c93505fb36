"""Which addresses belong to the public internet. Pure module.

All others lead to this machine, to its neighbours or to services that trust every client that reaches them.
The owner of a name outside can make it resolve to any of those.
"""

import ipaddress
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# The first block that contains an address names it.
_SPECIAL_V4: Final = tuple(
    (ipaddress.IPv4Network(block), name)
    for block, name in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "metadata of a cloud"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL_V6: Final = tuple(
    (ipaddress.IPv6Network(block), name)
    for block, name in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # Teredo, benchmarks and others
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "reserved"),  # 6to4: an IPv4 address inside an IPv6 one
        ("3fff::/20", "for documentation"),
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def name_special(address: Address) -> str | None:
    """Why an address is not public; None if it is public.

    An IPv4 address inside an IPv6 one counts as itself where a translator connects to it.
    """
    inner = untranslate(address)
    if isinstance(inner, ipaddress.IPv4Address):
        return next((name for block, name in _SPECIAL_V4 if inner in block), None)
    named = next((name for block, name in _SPECIAL_V6 if inner in block), None)
    return named or (None if inner in _GLOBAL_V6 else "reserved")


def is_public(address: Address) -> bool:
    """Whether an address is of the public internet."""
    return name_special(address) is None


def is_loopback(address: Address) -> bool:
    """Whether an address is this machine's own by definition."""
    return unmap(address).is_loopback or unmap(address).is_unspecified


def unmap(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (`::ffff:1.2.3.4`), or the address itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def untranslate(address: Address) -> Address:
    """The IPv4 address that a connection to an address leads to, also by a translator, or itself."""
    inner = unmap(address)
    if isinstance(inner, ipaddress.IPv6Address) and inner in _NAT64:
        return ipaddress.IPv4Address(int(inner) & 0xFFFF_FFFF)
    return inner
