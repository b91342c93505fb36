"""Conversations about the managed network: settings, variables, what a proxy refuses, who is asked."""

from collections.abc import Iterator
from typing import Any, Final

from tests.support.dialogue import READ_ALL, READY, Ask, Closed, Step, Told, sandbox, start
from tests.support.managed import INSIDE, SETTINGS

_REPORT: Final = """
import json
def report(answer):
    if isinstance(answer, bytes):
        return print("socks", answer[2:].hex(), flush=True)
    head, _, body = answer.partition("\\r\\n\\r\\n")
    error = [line.split(": ")[1] for line in head.split("\\r\\n") if line.lower().startswith("x-proxy-error")]
    kind = "json" if body.startswith("{") else "text"
    told = json.loads(body) if kind == "json" else {}
    told.pop("message", None)
    print(head.split(" ")[1], *error, kind if error else "", json.dumps(told, sort_keys=True), flush=True)
"""


def proxied(script: str, timeout_ms: int | None = None, process: str = "p", **settings: Any) -> Ask:
    proxy: dict[str, Any] = {"proxy": SETTINGS | settings}
    if timeout_ms is not None:
        proxy["policyDecisionTimeoutMs"] = timeout_ms
    return start(
        script,
        process,
        sandbox=sandbox(READ_ALL, network="enabled"),
        enforceManagedNetwork=True,
        networkProxy=proxy,
        env={"PATH": "/usr/bin:/bin"},
    )


def program(code: str, timeout_ms: int | None = None, **settings: Any) -> list[Step]:
    """A program inside, what it prints, and what was asked and told meanwhile."""
    begun = proxied("", timeout_ms, **settings)
    assert isinstance(begun.params, dict)
    argv = ["/usr/bin/python3", "-c", INSIDE + _REPORT + code]
    return [Ask(begun.method, begun.params | {"argv": argv}), Closed("p"), Told("p")]


def network() -> Iterator[tuple[str, list[Step]]]:
    yield (
        "proxy-settings",
        [
            proxied("", enabled=False),
            proxied("", 0),
            proxied("", 1, process=""),
            proxied("", 1, process="x" * 257),
            proxied("", mode="some"),
            proxied("", mode=None),
            proxied("", domains={"*": "deny"}),
            proxied("", domains={"a b": "allow"}),
            proxied("", domains={"": "allow"}),
            proxied("", domains={"http://a": "allow"}),
            proxied("", domains={"a.example": "perhaps"}),
            proxied("", unixSockets={"a": "perhaps"}),
            start("", networkProxy={}),
            start("", networkProxy={"proxy": {}}),
            start("", networkProxy="on"),
        ],
    )
    names = "env | cut -d= -f1 | grep -i -e proxy -e codex_network | sort"
    yield "proxy-variables", [proxied(names), Closed("p"), Told("p")]
    yield "proxy-variables-without-socks", [proxied("echo ${ALL_PROXY%%:*}", enableSocks5=False), Closed("p")]
    yield "proxy-variables-local", [proxied("echo $NO_PROXY", allowLocalBinding=True), Closed("p")]
    lists = {"a.example": "allow", "denied.example": "deny", "**.tree.example": "deny", "n.example": "none"}
    yield (
        "proxy-refusals",
        program(
            """
for name in ("b.example", "sub.a.example", "denied.example", "x.denied.example", "tree.example", "n.example",
             "x.tree.example", "127.0.0.1:9", "10.0.0.1", "localhost:9", "169.254.169.254", "b.example."):
    report(get(name))
for name in ("b.example:443", "denied.example:443", "127.0.0.1:22", "[::1]:22"):
    report(connect(name))
for name in (b"b.example", b"denied.example", b"127.0.0.1"):
    report(socks(name, 443))
report(socks(b"\\x7f\\0\\0\\1", 80, kind=1))
report(http("GET http://a.example/ HTTP/1.1\\r\\nHost: b.example\\r\\nConnection: close\\r\\n\\r\\n"))
""",
            domains=lists,
        ),
    )
    yield (
        "proxy-questions",
        program(
            """
for name in ("ask.example", "no.example", "listed.example", "denied.example", "127.0.0.1:9"):
    report(get(name))
report(connect("no.example:443"))
report(socks(b"ask.example", 25))
""",
            10_000,
            domains={"listed.example": "allow", "denied.example": "deny"},
            reviewDomains=["listed.example", "denied.example"],
        ),
    )
    yield (
        "proxy-without-anybody-to-ask",
        program(
            "report(get('listed.example'))", domains={"listed.example": "allow"}, reviewDomains=["**.example"]
        ),
    )
    yield (
        "proxy-limited",
        program(
            """
for method in ("POST", "DELETE", "PATCH"):
    report(get("localhost:9", "/", method))
report(connect("localhost:9"))
for port in (443, 22):
    report(socks(b"localhost", port))
report(get("b.example", "/", "POST"))
""",
            mode="limited",
            domains={"localhost": "allow"},
        ),
    )
    yield "proxy-unreachable", program("report(get('localhost:9'))", domains={"localhost": "allow"})
    tunnel = "report(connect('localhost:9'))"
    yield "proxy-unreachable-tunnel", program(tunnel, domains={"localhost": "allow"})[:2]
    yield "proxy-unknown-name", program("report(get('a.invalid'))", domains={"a.invalid": "allow"})[:2]
    yield "proxy-without-sandbox", [start("exit 3", networkProxy={"proxy": SETTINGS})]
    nul = "report(socks(b'a.example' + bytes(1) + b'.b.example', 443))"
    yield "proxy-nul-in-a-name", program(nul, domains={"**.b.example": "allow"})[:2]
    literal = "report(get('2130706433:9')); report(connect('0x7f.1:9'))"
    yield "proxy-odd-literals", program(literal, domains={"*": "allow"}, allowLocalBinding=True)[:2]


CASES: Final[dict[str, list[Step]]] = {name: [*READY, *steps] for name, steps in network()}
