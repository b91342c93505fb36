"""AWS keys of an executor, and its signatures. Keys are found in some of the places that AWS tools use.

An explicitly named profile comes first, then variables, then the profile of AWS_PROFILE or `default`. A
profile has keys, or a program that prints them (`credential_process`). Other sources are not supported: no
metadata service, no single sign-on, no assumed role. Files are read again for every signature, because keys
may change.
"""

import asyncio
import configparser
import os
import subprocess
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from time import time
from typing import Final, NamedTuple

import msgspec

from holdfast import decoding
from holdfast.errors import StartupError, UsageError
from holdfast.rendezvous.credentials import check_header
from holdfast.wire import sigv4
from holdfast.wire.sigv4 import AwsKeys, HttpRequest, Scope

SERVICE: Final = "execute-api"
PROCESS_S: Final = 30.0  # for the program that prints keys
EARLY_S: Final = 60.0  # how long before the expiry of a program's keys the program is run again

_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_REGION: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REMEDY: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give a profile keys or a credential_process"
)


class _Printed(msgspec.Struct, rename="pascal"):
    """The output of a credential_process."""

    version: int
    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expiration: datetime | None = None


class _Lent(NamedTuple):
    keys: AwsKeys
    until: float | None


class AwsSigner:
    """Signs with the current keys. Create it with `find`."""

    def __init__(self, scope: Scope, keys: AwsKeys | None, profile: str, environ: Mapping[str, str]) -> None:
        self.scope = scope
        self._keys = keys
        self._profile = profile
        self._environ = environ
        self._lent: _Lent | None = None

    async def sign(self, request: HttpRequest) -> Mapping[str, str]:
        """Return the headers that sign this request now. Raises: StartupError: there are no keys."""
        keys = await asyncio.get_running_loop().run_in_executor(None, self.find_keys)
        return sigv4.sign(request, keys, self.scope, time())

    def find_keys(self) -> AwsKeys:
        """Raises: StartupError: there are no keys; the text does not quote what was found instead."""
        if self._keys is not None:
            return self._keys
        if self._lent is not None and (self._lent.until is None or time() < self._lent.until):
            return self._lent.keys
        said = read_profile(self._profile, self._environ)
        if "aws_access_key_id" in said and "aws_secret_access_key" in said:
            return _checked(
                said["aws_access_key_id"], said["aws_secret_access_key"], said.get("aws_session_token")
            )
        if "credential_process" not in said:
            raise StartupError(f"the AWS profile {self._profile} has no keys", remedy=_REMEDY)
        self._lent = _run(said["credential_process"], self._environ)
        return self._lent.keys

    def __repr__(self) -> str:
        return "<AwsSigner>"


def find(
    profile: str | None, region: str | None, service: str, environ: MutableMapping[str, str]
) -> AwsSigner:
    """Create a signer. Keys in variables are removed from the environment, so that no command gets them.

    Raises:
        StartupError: there are no keys, or there is no region.
    """
    key_id, secret, token = (environ.get(name, "").strip() for name in _KEYS)
    named = profile or environ.get("AWS_PROFILE", "").strip() or "default"
    keys = _checked(key_id, secret, token) if profile is None and key_id and secret else None
    for name in _KEYS:
        environ.pop(name, None)
    place = region or next((environ[name] for name in _REGION if environ.get(name, "").strip()), None)
    place = place or read_profile(named, environ).get("region")
    if not place:
        raise StartupError("no AWS region is given", remedy="give --aws-region, or set AWS_REGION")
    signer = AwsSigner(Scope(place.strip(), service), keys, named, dict(environ))
    signer.find_keys()
    return signer


def read_profile(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Read a profile from both files; for keys the credentials file takes precedence.

    Raises:
        StartupError: a file cannot be read, or is invalid.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    said: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = environ.get(variable) or os.path.join(home, ".aws", file)
        # No section is special: `[DEFAULT]` is an ordinary profile.
        parser = configparser.RawConfigParser(strict=False, default_section="\0", delimiters=("=",))
        try:
            with open(path, encoding="utf-8") as source:
                parser.read_file(source)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, configparser.Error):  # the error's text may quote the file
            raise StartupError(f"cannot read the AWS profiles in {path}") from None
        if parser.has_section(section):
            said |= {key: value.strip() for key, value in parser.items(section)}
    return said


def _run(command: str, environ: Mapping[str, str]) -> _Lent:
    """Raises: StartupError: the program prints no keys; its other output is not shown."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own file names it
            ["/bin/sh", "-c", command],
            env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=PROCESS_S, check=True,
        )  # fmt: skip
        said = decoding.decode(done.stdout, _Printed)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        raise StartupError("the credential_process of the AWS profile gives no keys") from None
    until = None if said.expiration is None else said.expiration.timestamp() - EARLY_S
    return _Lent(_checked(said.access_key_id, said.secret_access_key, said.session_token), until)


def _checked(key_id: str, secret: str, token: str | None) -> AwsKeys:
    try:
        return AwsKeys(
            check_header(key_id, "the id of the AWS key"),
            check_header(secret, "the AWS secret key"),
            check_header(token, "the AWS session token") if token else None,
        )
    except UsageError as exc:
        raise StartupError(str(exc)) from None
