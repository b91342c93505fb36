"""What is public, by the blocks that are not."""

import ipaddress

from holdfast.egress.addresses import is_loopback, is_public, name_special
from tests.support.rows import every_row


@every_row(
    "text",
    [
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:5db8:d822::",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "4000::1",
    ],
)
def test_a_special_address_is_not_public_and_has_a_name(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert name_special(address)
    assert not is_public(address)


@every_row(
    "text",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:2800:220:1::1",
        "2001:200::1",
        "2003::1",
        "::ffff:93.184.216.34",
        "64:ff9b::5db8:d822",
    ],
)
def test_the_rest_is_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def test_loopback_is_known_in_every_form() -> None:
    forms = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::")
    assert all(is_loopback(ipaddress.ip_address(text)) for text in forms)
    assert not is_loopback(ipaddress.ip_address("10.0.0.1"))
