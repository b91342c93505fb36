"""Where an executor's AWS keys come from, and that they stay with it."""

import json
from pathlib import Path

import pytest

from holdfast.errors import StartupError
from holdfast.server.remote import awskeys
from holdfast.server.remote.awskeys import AwsSigner, find
from holdfast.wire.sigv4 import AwsKeys, Scope
from tests.support.rows import every_row

CREDENTIALS = """
[default]
aws_access_key_id = AKDEFAULT
aws_secret_access_key = SECRET1
[work]
aws_access_key_id = AKWORK
aws_secret_access_key = SECRET2
aws_session_token = TOKEN2
"""
CONFIG = """
[default]
region = eu-west-1
s3 =
  signature_version = s3v4
[profile work]
region = eu-north-1
[profile lent]
region = eu-north-1
credential_process = cat "$HOME/printed"
[profile empty]
region = eu-north-1
"""
WORK = AwsKeys("AKWORK", "SECRET2", "TOKEN2")
DEFAULT = AwsKeys("AKDEFAULT", "SECRET1")
KEYS = {"AWS_ACCESS_KEY_ID": "AKVAR", "AWS_SECRET_ACCESS_KEY": "SECRET3", "AWS_SESSION_TOKEN": "TOKEN3"}
BY_VARIABLE = AwsKeys("AKVAR", "SECRET3", "TOKEN3")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS, "utf-8")
    (tmp_path / ".aws" / "config").write_text(CONFIG, "utf-8")
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


@every_row(
    ("profile", "more", "keys", "region"),
    [
        (None, {}, DEFAULT, "eu-west-1"),
        (None, {"AWS_PROFILE": "work"}, WORK, "eu-north-1"),
        ("work", {}, WORK, "eu-north-1"),
        (None, KEYS, BY_VARIABLE, "eu-west-1"),
        ("work", KEYS, WORK, "eu-north-1"),  # a profile that is named comes first, as with the reference
        (None, {"AWS_REGION": "r1", "AWS_DEFAULT_REGION": "r2"}, DEFAULT, "r1"),
        (None, {"AWS_DEFAULT_REGION": "r2"}, DEFAULT, "r2"),
    ],
)
def test_keys_and_region_are_those_that_the_reference_takes(
    profile: str | None, more: dict[str, str], keys: AwsKeys, region: str, environ: dict[str, str]
) -> None:
    signer = find(profile, None, "execute-api", environ | more)
    assert (signer.find_keys(), signer.scope) == (keys, Scope(region, "execute-api"))


def test_a_region_that_is_given_comes_first_and_variables_with_keys_are_emptied(
    environ: dict[str, str],
) -> None:
    environ |= KEYS | {"AWS_REGION": "r1"}
    assert find(None, "r0", "svc", environ).scope == Scope("r0", "svc")
    assert not set(environ) & set(KEYS)
    assert environ["AWS_REGION"] == "r1"


def test_keys_that_change_in_the_file_are_the_keys_of_the_next_signature(environ: dict[str, str]) -> None:
    signer = find(None, None, "svc", environ)
    file = Path(environ["HOME"], ".aws", "credentials")
    file.write_text(CREDENTIALS.replace("SECRET1", "SECRET9"), "utf-8")
    assert signer.find_keys().secret == "SECRET9"


def print_keys(environ: dict[str, str], **more: object) -> None:
    said = {"Version": 1, "AccessKeyId": "AKLENT", "SecretAccessKey": "SECRET4", **more}
    Path(environ["HOME"], "printed").write_text(json.dumps(said), "utf-8")


def test_a_program_may_print_keys_and_is_asked_again_when_they_end(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_keys(environ, SessionToken="TOKEN4", Expiration="2033-05-18T03:33:20Z")
    signer = find("lent", None, "svc", environ)
    assert signer.find_keys() == AwsKeys("AKLENT", "SECRET4", "TOKEN4")
    print_keys(environ, SecretAccessKey="SECRET5")
    assert signer.find_keys().secret == "SECRET4"
    monkeypatch.setattr(awskeys, "time", lambda: 2_000_000_000.0 - awskeys.EARLY_S)
    assert signer.find_keys().secret == "SECRET5"
    assert signer.find_keys().secret == "SECRET5"


@every_row(
    ("profile", "more"),
    [
        ("nobody", {}),
        ("empty", {}),
        ("lent", {}),  # its program prints nothing
        (None, {"AWS_SHARED_CREDENTIALS_FILE": "/etc"}),
        (None, {"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}),
        (None, KEYS | {"AWS_SESSION_TOKEN": "TOKEN\n3"}),
    ],
)
def test_without_keys_there_is_no_start(
    profile: str | None, more: dict[str, str], environ: dict[str, str]
) -> None:
    with pytest.raises(StartupError) as refused:
        find(profile, "r", "svc", environ | more)
    assert not any(word in str(refused.value) for word in ("SECRET", "TOKEN\n"))


def test_without_a_region_there_is_no_start_and_what_makes_no_sense_is_not_shown(
    environ: dict[str, str],
) -> None:
    with pytest.raises(StartupError, match="region"):
        find(None, None, "svc", {"HOME": "/nonexistent", **KEYS})
    Path(environ["HOME"], ".aws", "credentials").write_text("SECRET1 and nothing else", "utf-8")
    with pytest.raises(StartupError) as refused:
        find(None, None, "svc", environ)
    assert "SECRET1" not in str(refused.value)


def test_a_signer_does_not_show_its_keys() -> None:
    assert repr(AwsSigner(Scope("r", "s"), WORK, "work", {})) == "<AwsSigner>"
