import json

import msgspec
import pytest

from holdfast.errors import (
    NotFound,
    OperationFailed,
    RemoteProtocolError,
    SandboxUnavailable,
    StaleRun,
    UsageError,
    from_rpc_error,
)
from holdfast.unixrpc.calls import decode_params, decode_result, encode_failure
from holdfast.wire import rpc


class Asked(msgspec.Struct):
    name: str = "nobody"
    share: float = 0.0
    kept: msgspec.Raw = msgspec.Raw(b"null")


def test_params_are_typed_and_what_is_kept_raw_is_what_was_written() -> None:
    line = b'{"id": 1, "method": "m", "params": {"name": "x", "share": 0.1, "kept": { "a" : 1.50 }}}'
    asked = decode_params(line, Asked)
    assert (asked.name, asked.share, bytes(asked.kept)) == ("x", 0.1, b'{ "a" : 1.50 }')


def test_a_call_without_params_has_the_defaults() -> None:
    assert decode_params(rpc.request(1, "m"), Asked).name == "nobody"


def test_params_that_do_not_fit_are_the_caller_s_fault() -> None:
    with pytest.raises(UsageError, match="name"):
        decode_params(rpc.request(1, "m", {"name": 1}), Asked)


def test_a_result_comes_back_as_its_type_and_another_one_is_refused() -> None:
    assert decode_result(rpc.response(1, [Asked("x")]), list[Asked])[0].name == "x"
    with pytest.raises(RemoteProtocolError, match="not what was asked for"):
        decode_result(rpc.response(1, {"name": []}), Asked)


@pytest.mark.parametrize("cls", [NotFound, StaleRun, SandboxUnavailable, OperationFailed])
def test_an_error_is_of_the_same_class_on_the_other_side_whatever_it_says(cls: type[NotFound]) -> None:
    said = rpc.decode(encode_failure(7, cls("cannot enforce \udce9", remedy="type \udce9")))
    assert isinstance(said, rpc.ErrorResponse)
    error = from_rpc_error(said.code, said.message, said.data)
    assert (type(error), str(error), error.remedy) == (cls, "cannot enforce ?", "type ?")


def test_a_class_made_later_is_known_by_its_parent() -> None:
    class Vanished(NotFound):
        pass

    assert json.loads(encode_failure(7, Vanished("x")))["error"]["data"] == {
        "kind": "NotFound",
        "remedy": None,
    }
