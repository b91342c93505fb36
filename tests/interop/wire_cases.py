"""Conversations about messages: what is one, when it may be sent, which values it may hold."""

from collections.abc import Iterator
from typing import Any, Final

from tests.support.dialogue import READY, STATUS, Ask, Raw, Step, Tell, canonical, fs, process


def malformed() -> Iterator[tuple[str, list[Step]]]:
    """Messages that are not requests; the connection must still work afterwards."""
    messages: dict[str, str | bytes] = {
        "no-json": "nonsense",
        "empty-text": "",
        "batch": '[{"id":1,"method":"environment/status"}]',
        "scalar": "7",
        "empty-object": "{}",
        "only-an-id": '{"id":1}',
        "float-id": '{"id":1.0,"method":"environment/status"}',
        "null-id": '{"id":null,"method":"environment/status"}',
        "bool-id": '{"id":true,"method":"environment/status"}',
        "huge-id": '{"id":9223372036854775808,"method":"environment/status"}',
        "double-key": '{"id":1,"id":2,"method":"environment/status"}',
        "double-key-inside": '{"id":1,"method":"environment/status","params":{"a":1,"a":2}}',
        "method-is-a-number": '{"id":1,"method":3}',
        "trace-is-text": '{"id":1,"method":"environment/status","trace":"x"}',
        "too-many-values": '{"id":1,"method":"x","params":[' + "1," * 262_143 + "1]}",
        "bytes-not-utf-8": b'{"id":1,"method":"\xff"}',
        "nan": '{"id":1,"method":"environment/status","x":NaN}',
        "raw-newline-in-text": '{"id":1,"method":"a\nb"}',
        "trailing-garbage": '{"id":1,"method":"environment/status"} x',
        "error-is-text": '{"id":1,"error":"x"}',
        "deep-nesting": '{"id":1,"method":"x","params":' + "[" * 300 + "]" * 300 + "}",
        "lone-surrogate": '{"id":1,"method":"\\ud800"}',
    }
    for name, data in messages.items():
        yield name, [*READY, Raw(data), STATUS]


def envelopes() -> Iterator[tuple[str, list[Step]]]:
    messages: dict[str, str | bytes] = {
        "text-id": '{"id":"a","method":"environment/status"}',
        "empty-id": '{"id":"","method":"environment/status"}',
        "negative-id": '{"id":-9223372036854775808,"method":"environment/status"}',
        "jsonrpc-member": '{"jsonrpc":"2.0","id":1,"method":"environment/status"}',
        "spaces-around": ' \n{"id":1,"method":"environment/status"}\t ',
        "binary-frame": b'{"id":1,"method":"environment/status"}',
        "method-and-result": '{"id":1,"method":"environment/status","result":1}',
        "null-trace": '{"id":1,"method":"environment/status","trace":null}',
        "odd-trace": '{"id":1,"method":"environment/status","trace":{"traceparent":"x"}}',
        "numeric-traceparent": '{"id":1,"method":"environment/status","trace":{"traceparent":1}}',
        "unknown-method": '{"id":1,"method":"no/such"}',
        "empty-params": '{"id":1,"method":"environment/status","params":{}}',
        "list-params": '{"id":1,"method":"environment/status","params":[]}',
        "surplus-params": '{"id":1,"method":"environment/status","params":{"x":1}}',
        "unknown-member": '{"id":1,"method":"process/terminate","params":{"processId":"x","y":1e999}}',
        "positional-params": '{"id":1,"method":"process/terminate","params":["x"]}',
        "most-values": '{"id":1,"method":"x","params":[' + "1," * 262_139 + "1]}",
        "unknown-notification": '{"method":"no/such"}',
        "answer-to-nothing": '{"id":5,"result":{}}',
        "error-to-nothing": '{"id":5,"error":{"code":1,"message":"x"}}',
    }
    for name, data in messages.items():
        yield name, [*READY, Raw(data)]


FAMILIES: Final = {
    "exec": process("terminate"),
    "status": STATUS,
    "info": Ask("environment/info"),
    "config": Ask("environmentConfig/read", {"cwd": "$W", "configPaths": [["x"]], "requirementsPaths": []}),
    "discovery": canonical("$W"),
    "files": fs("getMetadata", "a.txt"),
    "http": Ask("http/request", {"method": "GET", "url": "http://127.0.0.1:1/", "requestId": "r"}),
}


def handshakes() -> Iterator[tuple[str, list[Step]]]:
    hello = READY[0]
    for name, request in FAMILIES.items():
        yield f"{name}-before-initialize", [request]
        yield f"{name}-before-initialized", [hello, request]
    resume = Ask("initialize", {"clientName": "x", "resumeSessionId": "nobody"})
    yield "params-before-gate", [Ask("process/terminate", {"processId": 1})]
    yield "unknown-method-before-gate", [Ask("no/such")]
    yield "initialize-twice", [*READY, hello]
    yield "resume-unknown-then-fresh", [resume, *READY, STATUS]
    yield "initialize-without-name", [Ask("initialize", {}), *READY, STATUS]
    yield "initialized-too-early", [Raw('{"method":"initialized"}')]
    yield "initialized-twice", [*READY, Tell("initialized"), STATUS]
    yield "information", [*READY, Ask("environment/info", shape=True)]


def permissions() -> Iterator[tuple[str, list[Step]]]:
    def read(profile: object, **more: Any) -> Ask:
        context = {"permissions": profile, "windowsSandboxLevel": "disabled"}
        return fs("readFile", "a.txt", sandbox=context | more)

    def restricted(*entries: object, **more: Any) -> dict[str, object]:
        system = {"type": "restricted", "entries": list(entries)} | more
        return {"type": "managed", "file_system": system, "network": "restricted"}

    root = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
    here = {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"}
    odd = {"path": {"type": "special", "value": {"kind": "nonsense"}}, "access": "read"}
    everything = {"type": "managed", "file_system": {"type": "unrestricted"}, "network": "enabled"}
    yield (
        "profiles-that-restrict",
        [
            read(restricted(root)),
            read(restricted(root, here), cwd="$W"),
            read(restricted(root | {"missing_path_behavior": "skip"})),
        ],
    )
    yield (
        "profiles",
        [
            read({"type": "disabled"}),
            read({"type": "external", "network": "enabled"}),
            read(everything),
            read({"type": "external"}),
            read({"type": "nonsense"}),
            read(restricted(root, here)),
            read(restricted(odd)),
            read(restricted(root | {"access": "execute"})),
            read(restricted(root | {"missing_path_behavior": "fail"})),
            read(restricted(root, glob_scan_max_depth=0)),
            read({"type": "disabled"}, windowsSandboxLevel="none"),
            read({"type": "disabled"}, cwd="$P"),
            read({"type": "disabled"}, useLegacyLandlock=None),
            fs("readFile", "a.txt", sandbox={"permissions": {"type": "disabled"}}),
        ],
    )


def uris() -> Iterator[tuple[str, list[Step]]]:
    plain = [
        "file:///nil/a",
        "file:///nil/a/",
        "FILE:///nil",
        "file:/nil",
        "file:nil",
        "file://LOCALHOST/nil",
    ]
    slashes = ["file:////nil", "file://///nil", "file:///a//b", "file:///nil/a\\b", "file:\\\\\\nil"]
    dots = [
        "file:///a/../b/./c",
        "file:///a/%2E%2E/b/c",
        "file:///../a",
        "file:///a/.%2e/b",
        "file:///nil/x/..",
    ]
    escapes = ["file:///a b", "file:///é", "file:///%ff", "file:///a%2fb", "file:///nil/100%", "file:///%zz"]
    escapes += ["file:///a'b\"c<d>e`f{g}h|i^j", "file:///a;b=c@d", "file:///a\x7fb"]
    spaces = [" file:///nil ", "file:///nil\n", "file:///a\tb", "\x00file:///nil"]
    foreign = ["file:///c:/Users/x", "file:///C|/x", "file://SERVER/Share/X", "file://server"]
    opaque = [f"file:///%00/bad/path/{load}" for load in ("L0M6", "L0M7", "L0M6=", "", "L0M6/x", "L0N", "QQ")]
    refused = ["/nil", "nil", "", "\\\\nil\\share", "C:\\x", "http://x/y", "file:///a?x", "file:///a#x"]
    refused += ["file:///a?", "file:///a%00b", "file://user@host/x", "file://host:80/x", "file://a b/x"]
    groups = {"plain": plain, "slashes": slashes, "dots": dots, "escapes": escapes, "spaces": spaces}
    groups |= {"foreign": foreign, "opaque": opaque, "refused": refused}
    yield "uri-address", [canonical("file://[::1]/x")]
    for name, group in groups.items():
        yield f"uri-{name}", [canonical(uri) for uri in group]


def the_rest() -> Iterator[tuple[str, list[Step]]]:
    def config(*paths: list[str], **more: Any) -> Ask:
        base = {"cwd": "$W", "configPaths": list(paths), "requirementsPaths": []}
        return Ask("environmentConfig/read", base | more, shape=True)

    yield (
        "config",
        [
            config(),
            config([]),
            config(["mcp_servers"]),
            config(["x"], cwd="file:///C:/x"),
            config(["x"], cwd="$W/gone"),
            config(["x"], configPaths=None),
        ],
    )
    many = [{"id": str(n), "path": "$W"} for n in range(129)]
    yield (
        "discovery",
        [
            Ask("capabilityRoots/discoverV1", {"roots": []}),
            Ask("capabilityRoots/discoverV1", {"roots": many}),
            *(canonical(f"$W/{name}") for name in ("plug", "plug/skills", "dir", "gone", "a.txt", "dirlink")),
            Ask("capabilities/discoverV2", {}),
            Ask("capabilities/discoverV2", {"cwd": "$P"}),
        ],
    )

    def http(**more: Any) -> Ask:
        base = {"method": "GET", "url": "http://127.0.0.1:1/", "requestId": "r"}
        return Ask("http/request", base | more)

    yield (
        "http-refused",
        [
            http(),
            http(method="A B"),
            http(url="ftp://127.0.0.1/"),
            http(url="nonsense"),
            http(headers=[{"name": "a b", "value": "x"}]),
            http(headers=[{"name": "a", "value": "x\ny"}]),
            http(headers=[{"name": "a", "value": "", "valueEnvVar": "NO_SUCH_VARIABLE"}]),
            http(headers=[{"name": "a", "value": "", "valueEnvVar": "openai_api_key"}]),
            http(bodyBase64="!"),
            http(redirectPolicy="never"),
            http(timeoutMs=-1),
            http(timeoutMs=0),
            http(requestId=None),
            http(streamResponse=True),
            http(streamResponse=True),
        ],
    )


CASES: Final[dict[str, list[Step]]] = {
    **{f"malformed-{name}": steps for name, steps in malformed()},
    **{f"envelope-{name}": steps for name, steps in envelopes()},
    **{f"handshake-{name}": steps for name, steps in handshakes()},
    **{name: [*READY, *steps] for group in (permissions, uris, the_rest) for name, steps in group()},
}
