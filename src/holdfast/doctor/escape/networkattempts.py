"""Attempts on addresses and sockets, with the network off. Pure module."""

from typing import Final

from holdfast.doctor.escape.attempt import NOTHING, REFUSED, UNREACHED, UNRESOLVED, Attempt, Guarantee

_FAR: Final = "'192.0.2.1'"  # reserved for examples: nobody is there
_NEAR: Final = "'127.0.0.1'"

_NETWORK: Final = (
    ("tcp-far", "connect to an address far away", f"tcp({_FAR}, 9)"),
    ("tcp-host", "connect to a server of the host on loopback", f"tcp({_NEAR}, scene.tcp)"),
    ("udp-far", "send a datagram far away", f"udp({_FAR}, 9)"),
    ("udp-host", "send a datagram to the host on loopback", f"udp({_NEAR}, scene.udp)"),
    (
        "tcp-fast-open",
        "send data with the first packet of a connection",
        f"socket.socket().sendto(b'x', socket.MSG_FASTOPEN, ({_NEAR}, scene.tcp))",
    ),
    ("tcp-mapped", "connect by an IPv6 name of an IPv4 address", "tcp('::ffff:127.0.0.1', scene.tcp)"),
    ("tcp-any", "connect to the address that means this host", "tcp('0.0.0.0', scene.tcp)"),
    (
        "multicast",
        "send a datagram to everybody",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('224.0.0.251', 5353))",
    ),
    (
        "dns-far",
        "ask a name server by its address",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.53', 53)); s.send(b'x')",
    ),
)

_FAMILIES: Final = (
    ("raw", "a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
    ("raw6", "a raw IPv6 socket", "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)"),
    ("packet", "a packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    ("vsock", "a socket to the hypervisor", "socket.socket(40, socket.SOCK_STREAM)"),
    ("alg", "a socket to the kernel's ciphers", "socket.socket(38, socket.SOCK_SEQPACKET)"),
    ("bluetooth", "a Bluetooth socket", "socket.socket(31, socket.SOCK_RAW, 1)"),
    ("xdp", "an express data path socket", "socket.socket(44, socket.SOCK_RAW)"),
    ("netlink-uevent", "listen to device events", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)"),
    ("netlink-audit", "a socket to the audit system", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)"),
    (
        "netlink-netfilter",
        "a socket to the packet filter",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
    ),
)

_SOCKETS: Final = (
    ("unix-path", "connect to a unix socket of the host", "socket.socket(1).connect(scene.stream)"),
    (
        "unix-abstract",
        "connect to an abstract unix socket of the host",
        "socket.socket(1).connect('\\0' + scene.abstract)",
    ),
    (
        "unix-datagram",
        "send to a datagram socket of the host",
        "socket.socket(1, socket.SOCK_DGRAM).sendto(b'x', scene.datagram)",
    ),
    (
        "unix-pair-datagram",
        "turn one end of a pair into a way to a datagram socket of the host",
        "a, b = socket.socketpair(1, socket.SOCK_DGRAM); a.sendto(b'x', scene.datagram)",
    ),
    (
        "unix-pair-raw",
        "the same with a pair that is called raw",
        "a, b = socket.socketpair(1, socket.SOCK_RAW); a.sendto(b'x', scene.datagram)",
    ),
    (
        "unix-pair-stream",
        "connect one end of a pair to a socket of the host",
        "a, b = socket.socketpair(1, socket.SOCK_STREAM); b.close(); a.connect(scene.stream)",
    ),
)

NETWORK: Final = (
    *(Attempt(id_, Guarantee.NETWORK, title, script, UNREACHED) for id_, title, script in _NETWORK),
    *(
        Attempt(id_, Guarantee.NETWORK, f"make {title}", script, REFUSED)
        if title.startswith(("a ", "an "))
        else Attempt(id_, Guarantee.NETWORK, title, script, REFUSED)
        for id_, title, script in _FAMILIES
    ),
    *(
        Attempt(id_, Guarantee.SOCKETS, title, script, UNREACHED | {"EISCONN", "EINVAL"})
        for id_, title, script in _SOCKETS
    ),
    Attempt(
        "dns",
        Guarantee.NETWORK,
        "look up a host name",
        "socket.getaddrinfo('holdfast-selfcheck.example.com', 80)",
        frozenset({UNRESOLVED}),
    ),
    Attempt(
        "interfaces",
        Guarantee.NETWORK,
        "find an interface that is not loopback",
        "found = [name for _, name in socket.if_nameindex() if name != 'lo']\n"
        "contained_unless(found, str(found))",
        NOTHING | REFUSED,
    ),
    Attempt(
        "interface-down",
        Guarantee.NETWORK,
        "change an interface",
        "import fcntl, struct\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sH22x', b'lo', 0x41))",
        REFUSED,
    ),
)
