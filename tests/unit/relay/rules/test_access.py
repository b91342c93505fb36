"""Who may ask a relay for what."""

import pytest

from holdfast.errors import PeerRefused, UsageError
from holdfast.relay.rules.access import Role, Token, allows, bearer, check, check_new, digest_of
from tests.support.rows import every_row

TEXT = "hfr_" + "x" * 43
NOW = 1_000


def token(**changed: object) -> Token:
    fields: dict[str, object] = {
        "id": "tok_1", "tenant": "t", "name": "n", "digest": digest_of(TEXT), "roles": (Role.HARNESS,),
        "environments": ("box", "ann-*"), "created_ms": 0,
    }  # fmt: skip
    return Token(**{**fields, **changed})  # type: ignore[arg-type]


@every_row(
    "header",
    [
        None, "", "Bearer", "Bearer ", "Basic abc", "AgentAssertion abc", TEXT, "Bearer tök",
        "Bearer " + "x" * 513,
    ],
    ids=repr,
)  # fmt: skip
def test_a_header_without_a_bearer_token_is_refused(header: str | None) -> None:
    with pytest.raises(PeerRefused):
        bearer(header)


@every_row("header", [f"Bearer {TEXT}", f"bearer   {TEXT} "])
def test_a_bearer_token_is_read(header: str) -> None:
    assert bearer(header) == TEXT


def test_a_valid_token_is_its_row() -> None:
    assert check(TEXT, token(expires_ms=NOW + 1), NOW) == token(expires_ms=NOW + 1)


@every_row(
    "found",
    [None, token(digest=digest_of("other")), token(revoked_ms=1), token(expires_ms=NOW)],
    ids=["unknown", "another", "revoked", "expired"],
)
def test_any_other_is_refused_in_the_same_words(found: Token | None) -> None:
    with pytest.raises(PeerRefused) as caught:
        check(TEXT, found, NOW)
    with pytest.raises(PeerRefused) as other:
        check(TEXT, None, NOW)
    assert str(caught.value) == str(other.value)


@every_row(
    ("role", "environment", "wanted"),
    [
        (Role.HARNESS, "box", True),
        (Role.HARNESS, "ann-1", True),
        (Role.HARNESS, "ann", False),
        (Role.HARNESS, "boxes", False),
        (Role.HARNESS, "BOX", False),
        (Role.EXECUTOR, "box", False),
    ],
)
def test_a_token_allows_its_roles_for_its_environments(role: Role, environment: str, wanted: bool) -> None:
    assert allows(token(), role, environment) is wanted


@every_row(
    "given",
    [
        {"name": ""}, {"name": "a b"}, {"name": "-a"}, {"tenant": "x" * 65}, {"roles": ()},
        {"environments": ()}, {"environments": ("a/b",)}, {"environments": ("[ab]",)},
        {"environments": ("x",) * 65}, {"token": "short"}, {"token": "x" * 513}, {"token": "x" * 20 + "\n"},
        {"token": "x" * 10 + " " + "x" * 10}, {"token": "ü" * 20},
    ],
    ids=repr,
)  # fmt: skip
def test_what_cannot_be_a_token_is_refused(given: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "name": "n", "tenant": "t", "roles": (Role.HARNESS,), "environments": ("*",), "token": None,
    }  # fmt: skip
    check_new(**fields)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        check_new(**{**fields, **given})  # type: ignore[arg-type]
