"""Every method's parameters, member by member: required, optional, or defaulted."""

import enum
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.wire import rpc
from holdfast.wire.methods import METHODS, MethodRow, decode_params, json_decoder
from holdfast.wire.paths import PathUri
from holdfast.wire.processes import ReadParams
from holdfast.wire.structs import NoParams
from tests.support.rows import every_row


class Flavour(enum.Enum):
    REQ = enum.auto()  # must be there, null is wrong
    OPT = enum.auto()  # absent and null are the same
    DEFAULT = enum.auto()  # may be absent, null is wrong


class Member(NamedTuple):
    flavour: Flavour
    good: object
    bad: object


REQ, OPT, DEFAULT = Flavour.REQ, Flavour.OPT, Flavour.DEFAULT

PATH = Member(REQ, "file:///srv/a", "/srv/a")
SANDBOX = Member(OPT, {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"}, {})
FOLLOW = Member(OPT, False, 0)
TEXT = Member(REQ, "x", 1)
NUMBER = Member(REQ, 2**64 - 1, -1)
OPTIONAL_NUMBER = Member(OPT, 2**64 - 1, "1")
FLAG = Member(DEFAULT, True, 1)
PROXY = {
    "enabled": True,
    "enableSocks5": True,
    "enableSocks5Udp": False,
    "allowUpstreamProxy": True,
    "dangerouslyAllowAllUnixSockets": False,
    "allowLocalBinding": False,
    "mode": "full",
}
LINK_AWARE = {"path": PATH, "followSymlinks": FOLLOW, "sandbox": SANDBOX}

MEMBERS: dict[str, dict[str, Member]] = {
    "initialize": {"clientName": TEXT, "resumeSessionId": Member(OPT, "s", 1), "holdfast": FLAG},
    "environmentConfig/read": {
        "cwd": PATH,
        "configPaths": Member(REQ, [["a", "b"]], ["a"]),
        "requirementsPaths": Member(REQ, [], [[1]]),
    },
    "process/start": {
        "processId": TEXT,
        "argv": Member(REQ, ["ls"], "ls"),
        "cwd": PATH,
        "env": Member(REQ, {"A": "b"}, {"A": 1}),
        "tty": Member(REQ, False, "false"),
        "pipeStdin": FLAG,
        "arg0": Member(OPT, "x", 1),
        "envPolicy": Member(
            OPT,
            {"inherit": "core", "ignoreDefaultExcludes": True, "exclude": [], "set": {}, "includeOnly": []},
            {"inherit": "some", "ignoreDefaultExcludes": True, "exclude": [], "set": {}, "includeOnly": []},
        ),
        "shellSnapshot": Member(
            OPT, {"scopeId": "t", "shell": {"name": "sh", "path": "/bin/sh"}}, {"scopeId": "t"}
        ),
        "sandbox": SANDBOX,
        "enforceManagedNetwork": FLAG,
        "managedNetwork": Member(OPT, {"loopbackPorts": [65535]}, {"loopbackPorts": [65536]}),
        "networkProxy": Member(OPT, {"proxy": PROXY}, {"proxy": {**PROXY, "mode": "some"}}),
        "metadata": Member(OPT, {"threadId": None, "toolCallId": "c"}, {"threadId": 1}),
        "watch": FLAG,
    },
    "process/denials": {"processId": TEXT, "after": Member(DEFAULT, 2**64 - 1, "1")},
    "process/read": {
        "processId": TEXT,
        "afterSeq": OPTIONAL_NUMBER,
        "maxBytes": OPTIONAL_NUMBER,
        "waitMs": OPTIONAL_NUMBER,
    },
    "process/write": {"processId": TEXT, "chunk": Member(REQ, "aGk=", "!"), "writeId": TEXT},
    "process/signal": {"processId": TEXT, "signal": Member(REQ, "interrupt", 2)},
    "process/terminate": {"processId": TEXT},
    "process/closeStdin": {"processId": TEXT},
    "process/resize": {
        "processId": TEXT,
        "rows": Member(REQ, 1, 0),
        "cols": Member(REQ, 65535, 65536),
    },
    "fs/readFile": LINK_AWARE,
    "fs/open": {
        "handleId": TEXT,
        "path": PATH,
        "sandbox": SANDBOX,
        "mode": Member(DEFAULT, "replace", "append"),
    },
    "fs/readBlock": {"handleId": TEXT, "offset": NUMBER, "len": NUMBER},
    "fs/writeBlock": {"handleId": TEXT, "offset": NUMBER, "chunk": Member(REQ, "", "aGk")},
    "fs/close": {"handleId": TEXT},
    "fs/writeFile": {**LINK_AWARE, "dataBase64": TEXT},
    "fs/createDirectory": {**LINK_AWARE, "recursive": Member(OPT, True, "yes")},
    "fs/getMetadata": LINK_AWARE,
    "fs/canonicalize": {"path": PATH, "sandbox": SANDBOX},
    "fs/readDirectory": {"path": PATH, "sandbox": SANDBOX},
    "fs/walk": {
        "path": PATH,
        "options": Member(
            REQ,
            {"maxDepth": 0, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": False},
            {"maxDepth": 0, "maxDirectories": 1, "maxEntries": 1},
        ),
        "sandbox": SANDBOX,
    },
    "fs/remove": {**LINK_AWARE, "recursive": Member(OPT, True, 1), "force": Member(OPT, False, 0)},
    "fs/copy": {
        "sourcePath": PATH,
        "destinationPath": PATH,
        "recursive": Member(REQ, False, 0),
        "sandbox": SANDBOX,
    },
    "fs/watchMissing": {
        "watchId": NUMBER,
        "missing": Member(REQ, ["file:///a"], ["a"]),
        "present": Member(OPT, "file:///b", "b"),
    },
    "capabilityRoots/discoverV1": {
        "roots": Member(REQ, [{"id": "r", "path": "file:///a", "sandbox": None}], [{"id": "r"}])
    },
    "capabilities/discoverV2": {
        "cwd": PATH,
        "sandbox": Member(
            OPT,
            {
                "permissions": {"type": "disabled"},
                "windowsSandboxLevel": "disabled",
                "cwd": "file:///a",
            },
            {"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"},
        ),
    },
    "http/request": {
        "method": TEXT,
        "url": TEXT,
        "requestId": TEXT,
        "headers": Member(DEFAULT, [{"name": "a", "value": "", "valueEnvVar": None}], [{"name": "a"}]),
        "bodyBase64": Member(OPT, "aGk=", "aGk"),
        "timeoutMs": OPTIONAL_NUMBER,
        "redirectPolicy": Member(DEFAULT, "stop", "ask"),
        "streamResponse": FLAG,
    },
}
PARAMETERLESS = ["environment/info", "environment/status"]
EACH = [(method, name, member) for method, members in MEMBERS.items() for name, member in members.items()]
EACH_IDS = [f"{method}-{name}" for method, name, _ in EACH]

CONTROL = {
    "environment/info",
    "environment/status",
    "process/signal",
    "process/terminate",
    "fs/close",
    "process/denials",
    "process/resize",
}
FAMILIES = {
    "initialize": "handshake",
    "environment/info": "environment info",
    "environment/status": "environment status",
    "environmentConfig/read": "environment config",
    "capabilityRoots/discoverV1": "capability discovery",
    "capabilities/discoverV2": "capability discovery",
    "http/request": "http",
}


def full(method: str) -> dict[str, object]:
    return {name: member.good for name, member in MEMBERS[method].items()}


def decoded(method: str, params: object) -> Any:
    return decode_params(METHODS[method], params)


def refused(method: str, params: object) -> bool:
    with pytest.raises(UsageError):
        decoded(method, params)
    return True


def test_every_method_is_covered_here() -> None:
    assert {*MEMBERS, *PARAMETERLESS} == set(METHODS)


@every_row("name", METHODS)
def test_the_rows_say_the_family_and_the_lane(name: str) -> None:
    method = METHODS[name]
    by_prefix = {"process/": "exec", "fs/": "filesystem"}
    expected = FAMILIES.get(name) or by_prefix[name[: name.index("/") + 1]]
    assert (method.name, method.family, method.control) == (name, expected, name in CONTROL)


def test_only_what_the_reference_lacks_is_ours() -> None:
    assert {name for name, method in METHODS.items() if method.ours} == {
        "process/closeStdin",
        "process/resize",
        "process/denials",
    }


@every_row("method", MEMBERS)
def test_all_members_and_unknown_ones_are_accepted(method: str) -> None:
    params = decoded(method, {**full(method), "someday": {"x": [1]}})
    assert isinstance(params, METHODS[method].params)
    assert params == decoded(method, full(method))


@every_row(("method", "name", "member"), EACH, ids=EACH_IDS)
def test_a_member_may_be_absent_unless_it_is_required(method: str, name: str, member: Member) -> None:
    params = full(method)
    del params[name]
    if member.flavour is REQ:
        assert refused(method, params)
    else:
        assert isinstance(decoded(method, params), METHODS[method].params)


@every_row(("method", "name", "member"), EACH, ids=EACH_IDS)
def test_null_stands_for_absent_only_where_there_is_no_default(
    method: str, name: str, member: Member
) -> None:
    params = {**full(method), name: None}
    if member.flavour is OPT:
        assert decoded(method, params) == decoded(
            method, {key: value for key, value in params.items() if key != name}
        )
    else:
        assert refused(method, params)


@every_row(("method", "name", "member"), EACH, ids=EACH_IDS)
def test_a_member_of_another_shape_is_refused(method: str, name: str, member: Member) -> None:
    assert refused(method, {**full(method), name: member.bad})
    assert refused(method, {**full(method), name: 1.5})


@every_row("method", MEMBERS)
@every_row("params", [None, {}, [], "x", 1, True])
def test_parameters_are_an_object(method: str, params: object) -> None:
    assert refused(method, params)


@pytest.mark.parametrize("method", PARAMETERLESS)
def test_omitted_null_and_empty_are_the_same_where_nothing_is_expected(method: str) -> None:
    assert decoded(method, None) == decoded(method, {}) == NoParams()


@every_row("method", PARAMETERLESS)
@every_row("params", [{"x": 1}, [], "", 0, False])
def test_anything_else_is_refused_where_nothing_is_expected(method: str, params: object) -> None:
    assert refused(method, params)


@every_row("text", ["1.0", "1e2", '"1"', "-1", "true", "18446744073709551616", "9" * 400])
def test_an_integer_is_strict(text: str) -> None:
    assert refused("process/read", rpc.parse(f'{{"processId":"p","afterSeq":{text}}}'.encode()))


@pytest.mark.parametrize("text", ["0", "18446744073709551615"])
def test_an_unsigned_integer_has_64_bits(text: str) -> None:
    params = decoded("process/read", rpc.parse(f'{{"processId":"p","afterSeq":{text}}}'.encode()))
    assert params == ReadParams("p", after_seq=int(text))


@every_row("chunk", ["aGk", "aG k=", "aGk=\n", "a-_=", "=", "é"])
def test_base64_is_the_padded_standard_alphabet(chunk: str) -> None:
    assert refused("process/write", {"processId": "p", "chunk": chunk, "writeId": "w"})


def test_base64_becomes_bytes() -> None:
    write = {"processId": "p", "chunk": "+/8=", "writeId": "w"}
    assert decoded("process/write", write).chunk == b"\xfb\xff"
    assert decoded("process/write", {**write, "chunk": ""}).chunk == b""


def test_a_path_becomes_a_canonical_uri() -> None:
    assert decoded("fs/canonicalize", {"path": "FILE:/a/../b"}).path == PathUri.parse("file:///b")


@every_row("path", [1, ["file:///a"], "http://x/y", "file:///a?x", "a"])
def test_a_path_is_a_file_uri(path: object) -> None:
    assert refused("fs/canonicalize", {"path": path})


def test_a_struct_with_a_type_nobody_decodes_is_a_mistake_of_ours() -> None:
    class Odd(msgspec.Struct):
        value: complex

    with pytest.raises(AssertionError):
        decode_params(MethodRow("odd", Odd, "exec"), {"value": 1})


def test_params_of_our_own_are_decoded_straight_from_json() -> None:
    method = METHODS["fs/canonicalize"]
    params = {"path": "file:///srv/x"}
    assert json_decoder(method.params).decode(b'{"path":"file:///srv/x"}') == decode_params(method, params)
