"""What `--secret` says, and what it cannot mean."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy import profile
from holdfast.sandbox.policy.policy import Network, read_only
from holdfast.sandbox.policy.secretwish import SecretWish, describe_secret, parse_secret
from tests.support.rows import every_row


@every_row(
    ("text", "expected"),
    [
        ("API_KEY@api.test", SecretWish("API_KEY", "", "api.test", 443)),
        ("K1@API.test:8443", SecretWish("K1", "", "api.test", 8443)),
        ("K=file:~/a@b@api.test", SecretWish("K", "file:~/a@b", "api.test", 443)),
        ("K=cmd:pass show a=b@api.test", SecretWish("K", "cmd:pass show a=b", "api.test", 443)),
        ("K=pass:a b@api.test", SecretWish("K", "pass:a b", "api.test", 443)),
        ("K=secret-tool:a b@http://api.test", SecretWish("K", "secret-tool:a b", "api.test", 80, tls=False)),
        ("K@http://127.0.0.1:8080", SecretWish("K", "", "127.0.0.1", 8080, tls=False)),
    ],
    ids=str,
)
def test_it_is_read(text: str, expected: SecretWish) -> None:
    assert parse_secret(text) == expected


@every_row(
    "text",
    [
        *("", "K", "@api.test", "1K@api.test", "K-1@api.test", "K@", "K@*.test", "K@**.test", "K@1.2.3.4"),
        *(
            "K@api.test:0",
            "K@api.test:99999",
            "K@a b",
            "K=@api.test",
            "K=file:@api.test",
            "K=sk-123@api.test",
            "K@127.0.0.1:8443",
            "K@http://127.0.0.1",
            "K@http://127.0.0.2:80",
            "K@https://api.test",
        ),
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--secret"):
        parse_secret(text)


def test_a_key_that_was_written_there_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse_secret("API_KEY=sk-the-real-key@api.test")
    assert "the-real-key" not in f"{caught.value} {caught.value.remedy}"


def test_its_host_is_allowed_and_nothing_else() -> None:
    policy = read_only().keep_secret("API_KEY@api.test")
    assert (policy.network, policy.hosts.allow) == (Network.OFF, ("api.test:443",))
    assert "API_KEY" in describe_secret(*policy.hosts.secrets)


TREE = {"filesystem": {":root": "read"}}


def test_a_profile_has_them_in_a_table() -> None:
    secrets = {"API_KEY": "api.test", "OTHER": "file:/run/key@other.test:8443"}
    policy = profile.policy_of(TREE | {"hosts": {"secrets": secrets}}, source="p.toml", home="/home/me")
    assert policy.hosts.secrets == ("API_KEY@api.test", "OTHER=file:/run/key@other.test:8443")
    assert policy.hosts.allow == ("api.test:443", "other.test:8443")


@every_row(
    "secrets", [["API_KEY@api.test"], {"API_KEY": 1}, {"API_KEY": "*.test"}, {"A-B": "api.test"}], ids=str
)
def test_a_profile_is_told_what_is_wrong(secrets: object) -> None:
    with pytest.raises(UsageError, match=r"p\.toml: hosts\.secrets"):
        profile.policy_of(TREE | {"hosts": {"secrets": secrets}}, source="p.toml", home="/home/me")
