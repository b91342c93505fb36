"""The tree of errors and its one map to the outside."""

import ast
import copy
import errno
import os
import re
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.client.links import ssh, transport
from holdfast.errors import (
    FACES,
    INTERNAL,
    Conflict,
    ConnectionLost,
    Face,
    HoldfastError,
    IllegalTransition,
    InvalidRequest,
    MethodNotFound,
    NotFound,
    OperationFailed,
    OutputLost,
    PeerRefused,
    ProtocolMismatch,
    RemoteProtocolError,
    SandboxUnavailable,
    SessionAttached,
    SessionLost,
    StaleRun,
    StoreDamaged,
    TokenRefused,
    Unreachable,
    UsageError,
    face,
    from_os_error,
    from_rpc_error,
    kind,
)
from holdfast.rendezvous import registryclient
from tests.support.rows import every_row

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, HoldfastError)]


@every_row(
    ("cls", "code"),
    [
        (UsageError, -32602),
        (MethodNotFound, -32601),
        (InvalidRequest, -32600),
        (PeerRefused, -32600),
        (RemoteProtocolError, -32600),
        (NotFound, -32004),
        (SessionAttached, -32010),
        (OperationFailed, -32603),
        (ConnectionLost, -32000),
        (SandboxUnavailable, -32602),
        (Unreachable, -32000),
        (ProtocolMismatch, -32600),
        (TokenRefused, -32600),
        (SessionLost, -32000),
        (OutputLost, -32603),
        (IllegalTransition, -32030),
        (Conflict, -32031),
        (StaleRun, -32032),
        (StoreDamaged, -32603),
    ],
)
def test_the_protocol_knows_each_error_by_its_code(cls: type[HoldfastError], code: int) -> None:
    assert face(cls("x")).rpc == code


@every_row("cls", [cls for cls in CLASSES if cls is not HoldfastError])
def test_every_class_has_a_face_of_its_own(cls: type[HoldfastError]) -> None:
    shown = FACES[cls]
    assert face(cls("x")) == shown
    assert 0 < shown.exit < 126
    assert 400 <= shown.http < 600


@every_row(
    ("cls", "code"),
    [
        *((InvalidRequest, 1), (IllegalTransition, 1), (TokenRefused, 1), (UsageError, 2), (NotFound, 3)),
        *((Conflict, 4), (StaleRun, 4), (Unreachable, 5), (ConnectionLost, 5), (StoreDamaged, 5)),
    ],
)
def test_every_command_ends_with_the_code_that_the_boards_help_promises(
    cls: type[HoldfastError], code: int
) -> None:
    assert face(cls("x")).exit == code


def test_a_class_made_later_looks_like_its_parent() -> None:
    class Vanished(NotFound):
        pass

    assert face(Vanished("x")) == FACES[NotFound]


@pytest.mark.parametrize("exc", [ValueError("x"), OSError(2, "x"), HoldfastError("x"), KeyboardInterrupt()])
def test_what_nobody_planned_is_an_internal_error(exc: BaseException) -> None:
    assert face(exc) == INTERNAL == Face(-32603, 70, 500)


def test_only_what_may_pass_by_itself_is_retryable() -> None:
    assert {cls for cls in CLASSES if cls.retryable} == {SessionAttached, ConnectionLost, Unreachable}


def test_an_error_carries_its_remedy() -> None:
    assert SandboxUnavailable("no", remedy="enable it").remedy == "enable it"
    assert SandboxUnavailable("no").remedy is None


@every_row(
    ("number", "cls"),
    [
        (errno.ENOENT, NotFound),
        (errno.EINVAL, InvalidRequest),
        (errno.EACCES, InvalidRequest),
        (errno.EPERM, InvalidRequest),
        (errno.EEXIST, OperationFailed),
        (errno.ENOTDIR, OperationFailed),
        (errno.EISDIR, OperationFailed),
        (errno.ENOTEMPTY, OperationFailed),
        (errno.EROFS, OperationFailed),
        (errno.ELOOP, OperationFailed),
        (errno.EIO, OperationFailed),
    ],
)
def test_an_os_error_is_classed_by_its_number(number: int, cls: type[HoldfastError]) -> None:
    assert type(from_os_error(OSError(number, os.strerror(number)))) is cls


def test_an_os_error_is_told_without_the_path() -> None:
    shown = from_os_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "/home/me/secret"))
    assert str(shown) == "No such file or directory (os error 2)"


def test_an_os_error_without_a_number_is_a_failed_operation() -> None:
    assert type(from_os_error(OSError("odd"))) is OperationFailed


@every_row(
    ("code", "text", "cls"),
    [
        (-32600, "unknown process id p9", InvalidRequest),
        (-32601, "no such method", MethodNotFound),
        (-32602, "argv must not be empty", UsageError),
        (-32602, "Object missing required field `permissions` - at `$.sandbox`", UsageError),
        (-32602, "sandbox intent cannot be enforced on this executor: no backend", UsageError),
        (-32603, "No such file or directory (os error 2)", OperationFailed),
        (-32004, "No such file or directory (os error 2)", NotFound),
        (-32010, "session s is already attached", SessionAttached),
        (-32000, "JSON-RPC transport closed", ConnectionLost),
        (-32000, "something else", OperationFailed),
        (1, "a code nobody knows", OperationFailed),
    ],
)
def test_an_answer_is_the_error_that_it_was_over_there(
    code: int, text: str, cls: type[HoldfastError]
) -> None:
    error = from_rpc_error(code, text)
    assert type(error) is cls
    assert str(error) == text


@every_row("cls", FACES)
def test_a_peer_of_ours_names_the_class(cls: type[HoldfastError]) -> None:
    error = from_rpc_error(-32000, "no", {"kind": kind(cls("no")), "remedy": "do that"})
    assert (type(error), str(error), error.remedy) == (cls, "no", "do that")


@every_row("data", [{"kind": "Unheard"}, {"kind": 3, "remedy": 4}, {"kind": "HoldfastError"}])
def test_a_class_that_nobody_knows_is_a_failed_operation(data: object) -> None:
    error = from_rpc_error(-32602, "no", data)
    assert (type(error), error.remedy) == (OperationFailed, None)


def test_a_class_made_later_goes_by_the_name_of_its_parent() -> None:
    class Vanished(NotFound):
        pass

    assert kind(Vanished("x")) == "NotFound"
    assert kind(ValueError("x")) == "OperationFailed"


def test_a_copy_of_an_error_says_the_same() -> None:
    error = copy.copy(SessionLost("gone", remedy="connect again"))
    assert (str(error), error.remedy) == ("gone", "connect again")


def test_a_remedy_says_what_to_do_and_asks_nothing() -> None:
    """It is printed after "try:"; a question there leaves the reader to guess."""
    source = Path(errors.__file__).parent
    asking = re.compile(r"(try|is|are|does|what|which|why|how)\b|.*[a-z]\?$")
    found = [
        f"{path.relative_to(source)}:{node.value.lineno}: {text}"
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "remedy"
        if asking.match(text := ast.unparse(node.value).lstrip("f").strip("'\""))
    ]
    assert found == []
    assert not [remedy for _, _, remedy in ssh._REASONS if asking.match(remedy)]
    assert not [words for words in (transport._REACH, registryclient._REACH) if asking.match(words)]
