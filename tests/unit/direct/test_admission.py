"""Who may come to a host, and what it is told."""

import json

import pytest

from holdfast.direct.admission import Asked, ExecutorKey, Gate, HostRefusal, answer, parse
from holdfast.errors import UsageError
from holdfast.wire.sigv4 import AwsKeys, HttpRequest, Scope, sign
from tests.support.rows import every_row

HERE = Scope("eu-central-1", "execute-api")
KEY = ExecutorKey("AKID", "secret", ("box-*", "lab"))
REGISTRATION = "0" * 32
NOW = 1_800_000_000.0


def request(method: str = "POST", target: str = "/cloud/environment/lab/direct/register") -> HttpRequest:
    plain = HttpRequest(method, target, (("host", "host.example"),), b"{}")
    keys = AwsKeys(KEY.key_id, KEY.secret)
    return plain._replace(headers=(*plain.headers, *sign(plain, keys, HERE, NOW).items()))


@every_row(
    ("method", "target", "asked"),
    [
        ("POST", "/cloud/environment/box-1~a/direct/register", Asked("box-1~a", None)),
        ("GET", f"/direct/environment/lab/{REGISTRATION}", Asked("lab", REGISTRATION)),
        ("GET", "/cloud/environment/lab/direct/register", None),
        ("POST", f"/direct/environment/lab/{REGISTRATION}", None),
        ("GET", f"/direct/environment/lab/{REGISTRATION}?more=1", None),
        ("GET", f"/direct/environment/lab/{REGISTRATION}0", None),
        ("POST", "/cloud/environment/a%2fb/direct/register", None),
        ("POST", "/cloud/environment/a/b/direct/register", None),
        ("POST", "/cloud/environment/lab/register", None),
        ("GET", "/", None),
    ],
)
def test_only_two_requests_mean_something(method: str, target: str, asked: Asked | None) -> None:
    assert parse(HttpRequest(method, target, ())) == asked


def test_a_key_is_for_the_environments_that_it_names_and_a_request_is_granted_once() -> None:
    gate = Gate([KEY], HERE)
    assert gate.judge(request(), Asked("lab", None), NOW) is None
    again = gate.judge(request(), Asked("lab", None), NOW + 1)
    assert again is not None
    assert (again.status, again.code) == (429, "rate_limited")
    other = gate.judge(request(), Asked("other", None), NOW)
    assert other is not None
    assert other.status == 403


def test_a_refusal_says_nothing_of_why() -> None:
    gate = Gate([KEY], HERE)
    unknown = Gate([KEY._replace(key_id="OTHER")], HERE)
    wrong = Gate([KEY._replace(secret="another")], HERE)
    said = {
        judged.encode()
        for one in (unknown, wrong)
        if (judged := one.judge(request(), Asked("lab", None), NOW))
    }
    late = gate.judge(request(), Asked("lab", None), NOW + 3600)
    assert isinstance(late, HostRefusal)
    assert said == {late.encode()}
    assert "AKID" not in late.reason


def test_an_executor_is_to_dial_where_it_has_reached_us() -> None:
    assert json.loads(answer("lab", request(), "wss", REGISTRATION)) == {
        "environment_id": "lab",
        "url": f"wss://host.example/direct/environment/lab/{REGISTRATION}",
        "transport": "direct_jsonrpc_v1",
        "registration_id": REGISTRATION,
    }


def test_a_host_without_a_key_is_none() -> None:
    for keys in ([], [ExecutorKey("", "secret")], [ExecutorKey("AKID", "")]):
        with pytest.raises(UsageError):
            Gate(keys, HERE)
    assert "secret" not in repr(KEY)
