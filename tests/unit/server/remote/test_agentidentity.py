"""An agent identity: what the released executor signed with this key, and what is no identity."""

import base64
import functools

import pytest

from holdfast.errors import StartupError, TokenRefused
from holdfast.server.remote.agentidentity import VARIABLE, AgentIdentity, AgentLogin, find_identity
from tests.support.logins import AGENT_KEY, agent_identity
from tests.support.rows import every_row

# What codex 0.166.0 sent with that key, at this time, for this task.
THEN = 1795021244.0  # 2026-11-18T17:00:44Z
TASK_BODY = (
    b'{"timestamp":"2026-11-18T17:00:44Z","signature":"ydG5hgR3xAt885KrUTXJYsmsJT/n//53jg1ycveYZujDADqZnkqx'
    b'YImiVFxP+l69ckZmtZdQFM4D0kyAHX4ZAg=="}'
)
ASSERTION = (
    "AgentAssertion eyJhZ2VudF9ydW50aW1lX2lkIjoiYWdlbnQtMSIsInNpZ25hdHVyZSI6Ik5TODZOM2NUZGZKcUpuVkNFejJy"
    "QmUySVBsY0pHb0tWUjhMayt1NjJOMW9WMWNZNUkva3VhekU5YmJCTDRrR2NiRExsMEZGVUxTb2Z6ZVVpZE80Q0R3PT0iLCJ0YXNr"
    "X2lkIjoidGFzay0xIiwidGltZXN0YW1wIjoiMjAyNi0xMS0xOFQxNzowMDo0NFoifQ"
)
HERE = "http://127.0.0.1:1"

token = functools.partial(agent_identity, THEN + 3600)


def test_an_agent_signs_as_the_released_executor_did() -> None:
    identity = AgentIdentity(token())
    assert identity.ask_for_task(THEN) == TASK_BODY
    assert identity.assert_task("task-1", THEN) == ASSERTION
    assert repr(identity) == "<AgentIdentity>"


@every_row(
    "bad",
    [
        "opaque",
        "a.b.c",
        token(agent_private_key="SECRET"),
        token(agent_private_key=base64.b64encode(b"SECRET").decode()),
        token(agent_runtime_id="../x"),
        token(account_id="a\nb"),
        token(exp=None),
        "e30.e30.e30",
    ],
    ids=lambda one: one[:20],
)
def test_a_token_that_is_no_identity_is_refused_and_not_quoted(bad: str) -> None:
    with pytest.raises(StartupError) as refused:
        AgentIdentity(bad)
    assert "SECRET" not in str(refused.value)
    assert AGENT_KEY not in str(refused.value)


def test_an_identity_comes_by_a_variable_that_is_emptied_and_goes_to_its_vendor_only() -> None:
    environ = {VARIABLE: token()}
    assert isinstance(find_identity(HERE, environ, lambda: THEN), AgentLogin)
    assert environ == {}
    with pytest.raises(StartupError, match="not set"):
        find_identity(HERE, {}, lambda: THEN)
    with pytest.raises(StartupError, match="vendor"):
        find_identity("https://relay.example", {VARIABLE: token()}, lambda: THEN)


def test_without_a_task_nothing_is_shown() -> None:
    with pytest.raises(TokenRefused):
        AgentLogin(AgentIdentity(token()), lambda: THEN).headers()
