"""Damaged messages, and the fence that keeps them from doing harm.

`Mutator` is a pure function of its seed and its corpus, `conversational` a strategy of hypothesis.
`Fence` asks the server's own decoder what a message would do and lets through only what stays below
one directory, runs a harmless program or connects to a port where nobody listens.
"""

import base64
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.server import httprules
from holdfast.wire import rpc
from holdfast.wire.http import HttpRequestParams
from holdfast.wire.methods import METHODS, decode_params
from holdfast.wire.paths import PathUri
from holdfast.wire.processes import StartParams

SEED_VARIABLE: Final = "HOLDFAST_FUZZ_SEED"
DEFAULT_SEED: Final = 20260822
HARMLESS: Final = ("/bin/true", "/bin/echo", "/bin/cat")
MAX_MESSAGE: Final = 48 * 1024  # keeps a run of many thousand short; the limits have tests of their own
TOO_MANY: Final = b'{"id":7,"method":"environment/status","params":[' + b"0," * rpc.MAX_VALUES + b"0]}"

NUMBERS: Final = (
    b"0", b"-0", b"-1", b"1.0", b"1e5", b"1E400", b"-1e-400", b"1e999999999999999999999", b"255", b"65536",
    b"4294967296", b"9007199254740993", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775808", b"-9223372036854775809", b"18446744073709551615", b"18446744073709551616",
    b"1" + b"0" * 400, b"0.1" + b"3" * 200, b"01", b"+1", b".5", b"0x10", b"1_000", b"NaN", b"-Infinity",
)  # fmt: skip
TEXTS: Final = (
    rb'"\ud800"', rb'"\udfff\ud800"', rb'"\ud83d\ude00"', rb'"\u0000"', rb'"a\u0000b"', rb'"\u202e\u200d"',
    b'"\xef\xbb\xbf"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xff\xfe"', rb'"\u0130\u0131\u017fK\u0301"',
    b'"\x7f"', b'"\t"', rb'"\x41"', rb'"\u12"', b'""', b'"' + b"A" * 5000 + b'"', rb'"\"\\\/\b\f\n\r\t"', b'"file:///%00"',
    b'"file:///C:/x"', b'"file://host/x"', b'"file:///%00/bad/path/L0M6"', b'"=="', b'"AAA"', b'"-_-_"',
)  # fmt: skip
OTHERS: Final = (
    b"null", b"true", b"false", b"[]", b"{}", b"[null]", b'{"":null}', b'{"a":1,"a":2}', b"nul", b"",
    b"[" * 126 + b"]" * 126, b"[" * 127 + b"]" * 127, b"[" * 3000, b'{"a":' * 2000 + b"1" + b"}" * 2000,
)  # fmt: skip
TOKENS: Final = (*NUMBERS, *TEXTS, *OTHERS)
SCRAPS: Final = (b",", b":", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\0", b"\n", b"\xff", b" ", b"//")
DAMAGE: Final = (0, 1, 1, 1, 1, 1, 2, 3)  # mutations per message; a sound one leaves something to act on


def chosen_seed() -> int:
    """The seed of this run."""
    return int(os.environ.get(SEED_VARIABLE, DEFAULT_SEED))


class Mutator:
    """An endless supply of damaged messages."""

    def __init__(self, seed: int, corpus: list[bytes], *, structured: bool = True) -> None:
        """`structured` if every entry of the corpus is JSON, so that some damage can respect that."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable is the point
        self._corpus = corpus
        self._trees = [json.loads(message) for message in corpus] if structured else []
        self._leaves = [leaf for tree in self._trees for _, _, leaf in _slots(tree)]
        self._kinds: tuple[Callable[[bytes], bytes], ...] = (
            self._flip, self._truncate, self._repeat, self._splice, self._token, self._scrap, self._drop,
            self._double_key, self._escape, *[self._transplant] * (12 if structured else 0),
        )  # fmt: skip

    def __iter__(self) -> Iterator[bytes]:
        while True:
            message = self._random.choice(self._corpus)
            for _ in range(self._random.choice(DAMAGE)):
                message = self._random.choice(self._kinds)(message)
            yield message[:MAX_MESSAGE]

    def _span(self, message: bytes) -> tuple[int, int]:
        start = self._random.randrange(len(message) + 1)
        return start, min(len(message), start + self._random.choice((1, 1, 2, 5, 20, 200)))

    def _flip(self, message: bytes) -> bytes:
        if not message:
            return b"\x80"
        damaged = bytearray(message)
        for _ in range(self._random.choice((1, 1, 2, 8))):
            damaged[self._random.randrange(len(damaged))] ^= 1 << self._random.randrange(8)
        return bytes(damaged)

    def _truncate(self, message: bytes) -> bytes:
        return message[: self._random.randrange(len(message) + 1)]

    def _repeat(self, message: bytes) -> bytes:
        start, end = self._span(message)
        times = self._random.choice((2, 2, 3, 50))
        return message[:start] + message[start:end] * times + message[end:]

    def _splice(self, message: bytes) -> bytes:
        other = self._random.choice(self._corpus)
        return message[: self._span(message)[0]] + other[self._span(other)[0] :]

    def _drop(self, message: bytes) -> bytes:
        start, end = self._span(message)
        return message[:start] + message[end:]

    def _scrap(self, message: bytes) -> bytes:
        start, _ = self._span(message)
        return message[:start] + self._random.choice(SCRAPS) + message[start:]

    def _token(self, message: bytes) -> bytes:
        """Replace what follows one colon, up to the next comma or bracket, by something odd."""
        colons = [at for at, byte in enumerate(message) if byte in b":,"]
        if not colons:
            return message + self._random.choice(TOKENS)
        start = self._random.choice(colons) + 1
        end = start
        while end < len(message) and message[end] not in b",]}":
            end += 1
        return message[:start] + self._random.choice(TOKENS) + message[end:]

    def _double_key(self, message: bytes) -> bytes:
        start, quote = message.find(b'"'), message.find(b":")
        return (
            message[:start] + message[start:quote] + b":1," + message[start:]
            if 0 <= start < quote
            else message
        )

    def _transplant(self, message: bytes) -> bytes:
        """Well-formed still: one value becomes another one of the corpus, or goes, or gets a new name."""
        tree = json.loads(json.dumps(self._random.choice(self._trees)))
        slots = list(_slots(tree))
        holder, key, _ = self._random.choice(slots)
        match self._random.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[self._random.choice(slots)[1] if self._random.random() < 0.5 else "x"] = holder.pop(
                    key
                )
            case 2:
                holder[key] = [holder[key]] * self._random.choice((1, 2, 200))
            case 3:
                return _replaced(tree, holder, key, self._random.choice(TOKENS))
            case _:
                holder[key] = self._random.choice(self._leaves)
        return json.dumps(tree, ensure_ascii=self._random.random() < 0.5).encode("utf-8", "surrogatepass")

    def _escape(self, message: bytes) -> bytes:
        """The same text, with one character written as an escape."""
        letters = [at for at, byte in enumerate(message) if 97 <= byte <= 122]
        if not letters:
            return message
        at = self._random.choice(letters)
        return message[:at] + b"\\u%04x" % message[at] + message[at + 1 :]


def _replaced(tree: Any, holder: Any, key: Any, token: bytes) -> bytes:
    mark = "\x01here\x01"
    holder[key] = mark
    return json.dumps(tree).encode().replace(json.dumps(mark).encode(), token)


def _slots(tree: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Every place in a JSON value: its container, its key, what is there."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key, tree[key]
        yield from _slots(tree[key])


class Fence:
    """Lets a message through if nothing it can cause leaves `root`."""

    def __init__(self, root: Path, closed_port: int) -> None:
        self._root = str(root) + "/"
        self._closed = f"http://127.0.0.1:{closed_port}/"

    def admits(self, data: bytes) -> bool:
        try:
            message = rpc.decode(data)
            if not isinstance(message, rpc.Request) or message.method not in METHODS:
                return True
            params = decode_params(METHODS[message.method], message.params)
        except HoldfastError:
            return True  # refused before it can do anything
        except Exception:
            return True  # the server must not fail like this: let it show
        if isinstance(params, HttpRequestParams):
            return params.url.startswith(self._closed) or _is_refused(params.url)
        if isinstance(params, StartParams) and params.argv and params.argv[0] not in HARMLESS:
            return False
        return all(self._inside(path) for path in _paths(params))

    def _inside(self, path: PathUri) -> bool:
        try:
            native = path.native()
        except HoldfastError:
            return True
        return native.startswith(self._root) and ".." not in native.split("/")


def _is_refused(url: str) -> bool:
    try:
        httprules.target(url)
    except HoldfastError:
        return True
    return False


def _paths(value: object) -> Iterator[PathUri]:
    """The paths a handler would use; those of a sandbox only describe a policy."""
    if isinstance(value, PathUri):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name != "sandbox":
                yield from _paths(getattr(value, name))


def corpus(root: Path, closed_port: int) -> list[bytes]:
    """Well-formed messages of every method, about what `furnish` puts below `root`."""
    uri = root.as_uri()
    here = f"{uri}/dir"
    sandbox = {
        "permissions": {
            "type": "managed",
            "file_system": {
                "type": "restricted",
                "entries": [
                    {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
                    {"path": {"type": "path", "path": here}, "access": "write"},
                    {"path": {"type": "glob_pattern", "pattern": "**/*.env"}, "access": "deny"},
                ],
            },
            "network": "restricted",
        },
        "windowsSandboxLevel": "disabled",
        "cwd": uri,
        "workspaceRoots": [uri],
    }
    everything = {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}
    chunk = base64.b64encode(b"some bytes\n").decode()
    start = {"processId": "p", "argv": ["/bin/echo", "hello"], "cwd": here, "env": {}, "tty": False}
    policy = {
        "inherit": "core",
        "ignoreDefaultExcludes": True,
        "exclude": ["A*"],
        "set": {},
        "includeOnly": [],
    }
    url = f"http://127.0.0.1:{closed_port}/x?y=z"
    snapshot = {"scopeId": "1", "shell": {"name": "bash", "path": "/bin/true"}}
    header = {"name": "X-A", "value": "b", "valueEnvVar": "PATH"}
    streamed = {"streamResponse": True, "headers": [header], "redirectPolicy": "stop"}
    walk = {"maxDepth": 3, "maxDirectories": 10, "maxEntries": 20, "followDirectorySymlinks": True}
    calls: list[tuple[str, object]] = [
        ("initialize", {"clientName": "fuzz", "resumeSessionId": None}),
        ("initialize", {"clientName": "fuzz", "resumeSessionId": "00000000-0000-4000-8000-000000000000"}),
        ("environment/info", None),
        ("environment/status", {}),
        ("environmentConfig/read", {"cwd": here, "configPaths": [["model"]], "requirementsPaths": [["b"]]}),
        ("process/start", start),
        ("process/start", start | {"argv": ["/bin/cat"], "processId": "c", "pipeStdin": True, "arg0": "dog"}),
        ("process/start", start | {"argv": ["/bin/cat"], "processId": "t", "tty": True, "envPolicy": policy}),
        ("process/start", start | {"processId": "s", "sandbox": sandbox, "metadata": {"threadId": "1"}}),
        ("process/start", start | {"argv": ["/bin/true", "-lc", "x"], "shellSnapshot": snapshot}),
        ("process/read", {"processId": "p", "afterSeq": 0, "maxBytes": 100, "waitMs": 5}),
        ("process/read", {"processId": "c", "afterSeq": 2, "maxBytes": None, "waitMs": 0}),
        ("process/write", {"processId": "c", "chunk": chunk, "writeId": "w1"}),
        ("process/write", {"processId": "t", "chunk": chunk, "writeId": "w2"}),
        ("process/signal", {"processId": "c", "signal": "interrupt"}),
        ("process/signal", {"processId": "t", "signal": "SIGTERM"}),
        ("process/terminate", {"processId": "c"}),
        ("process/closeStdin", {"processId": "t"}),
        ("process/resize", {"processId": "t", "rows": 30, "cols": 100}),
        ("process/denials", {"processId": "t", "after": 0}),
        ("fs/readFile", {"path": f"{uri}/dir/file"}),
        ("fs/readFile", {"path": f"{uri}/link", "followSymlinks": False, "sandbox": everything}),
        ("fs/open", {"handleId": "h1", "path": f"{uri}/dir/file"}),
        ("fs/open", {"handleId": "h2", "path": f"{uri}/dir/new", "mode": "replace"}),
        ("fs/readBlock", {"handleId": "h1", "offset": 0, "len": 100}),
        ("fs/writeBlock", {"handleId": "h2", "offset": 3, "chunk": chunk}),
        ("fs/close", {"handleId": "h1"}),
        ("fs/writeFile", {"path": f"{uri}/dir/made", "dataBase64": chunk}),
        ("fs/writeFile", {"path": f"{uri}/link", "dataBase64": chunk, "followSymlinks": False}),
        ("fs/createDirectory", {"path": f"{uri}/dir/a/b", "recursive": True}),
        ("fs/createDirectory", {"path": f"{uri}/dir/c", "recursive": False, "followSymlinks": False}),
        ("fs/getMetadata", {"path": f"{uri}/link"}),
        ("fs/getMetadata", {"path": f"{uri}/fifo", "followSymlinks": False}),
        ("fs/canonicalize", {"path": f"{uri}/link/../link"}),
        ("fs/readDirectory", {"path": here}),
        ("fs/walk", {"path": here, "options": walk}),
        ("fs/remove", {"path": f"{uri}/dir/a", "recursive": True, "force": False}),
        ("fs/remove", {"path": f"{uri}/dir/made", "recursive": False, "followSymlinks": False}),
        ("fs/copy", {"sourcePath": here, "destinationPath": f"{uri}/copy", "recursive": True}),
        ("fs/copy", {"sourcePath": f"{uri}/fifo", "destinationPath": f"{uri}/copy2", "recursive": False}),
        ("fs/watchMissing", {"watchId": 1, "missing": [f"{uri}/dir/nothing"], "present": f"{uri}/dir/file"}),
        ("capabilityRoots/discoverV1", {"roots": [{"id": "r", "path": here, "sandbox": None}]}),
        ("capabilities/discoverV2", {"cwd": here, "sandbox": None}),
        ("http/request", {"method": "GET", "url": url, "requestId": "r1", "timeoutMs": 1000}),
        ("http/request", {"method": "POST", "url": url, "requestId": "r2", "bodyBase64": chunk} | streamed),
    ]  # fmt: skip
    requests: list[dict[str, object]] = [
        {"id": number, "method": method, "params": params} for number, (method, params) in enumerate(calls, 1)
    ]
    others: list[dict[str, object]] = [
        {
            "id": "a string",
            "method": "environment/status",
            "trace": {"traceparent": "00-1-2-01", "tracestate": "a"},
        },
        {"id": -1, "jsonrpc": "2.0", "method": "no/such"},
        {"method": "initialized", "params": {}},
        {"id": 1, "result": {"a": [1, 2.5, None]}},
        {"error": {"code": -32600, "message": "x", "data": {}}, "id": 1},
    ]
    return [json.dumps(message, separators=(",", ":")).encode() for message in (*requests, *others)]


def furnish(root: Path) -> None:
    """The files the corpus speaks of, and some that are hard to name."""
    (root / "dir" / "sub").mkdir(parents=True)
    (root / "dir" / "file").write_bytes(b"contents\n" * 20)
    (root / "dir" / "sub" / ".hidden").write_bytes(b"")
    (root / "link").symlink_to(root / "dir")
    (root / "dir" / "loop").symlink_to(root / "dir" / "loop")
    os.mkfifo(root / "fifo")
    with open(os.fsencode(root / "dir") + b"/not text \xff\xed\xa0\x80", "wb"):
        pass


JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
IDS: Final = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(kind)]


def known_values(messages: list[bytes]) -> dict[str, list[Any]]:
    """What the corpus gives each parameter."""
    known: dict[str, list[Any]] = {}
    for message in map(json.loads, messages):
        for name, value in (message.get("params") or {}).items():
            known.setdefault(name, []).append(value)
    return known


@st.composite
def conversational(draw: st.DrawFn, known: dict[str, list[Any]]) -> bytes:
    """A real method with parameters of the right names, most of them right, some anything at all."""
    method = draw(st.sampled_from(sorted(METHODS)) | st.text(max_size=5))
    row = METHODS.get(method)
    params: Any = draw(JSON)
    if row is not None and draw(st.integers(0, 9)):
        names = _fields(row.params)
        params = {
            name: draw(JSON)
            if name not in known or not draw(st.integers(0, 5))
            else draw(st.sampled_from(known[name]))
            for name in names
            if name in known or draw(st.booleans())
        }
        if draw(st.booleans()):
            params |= draw(
                st.dictionaries(st.text(max_size=3) | st.sampled_from(names or ["x"]), JSON, max_size=2)
            )
    message: dict[str, Any] = {
        "id": draw(IDS if draw(st.integers(0, 9)) else JSON),
        "method": method,
        "params": params,
    }
    if not draw(st.integers(0, 9)):
        message |= draw(st.dictionaries(st.sampled_from(["jsonrpc", "trace", "result", "error", "id"]), JSON))
    if not draw(st.integers(0, 19)):
        del message[draw(st.sampled_from(["id", "method", "params"]))]
    return json.dumps(message, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
