"""Parse environments from TOML, by the rules of the reference's `environments.toml`. Pure module.

Environments behind a registry are our extension: the reference supports them by variables only, and refuses a
file with them.

default = "buildbox"

[[environments]]
id = "buildbox"
url = "wss://buildbox.example:9443/exec"

[[environments]]
id = "behind-nat"
registry_url = "https://registry.example"
auth_bearer_token_file = "registry.token"

[[environments]]
id = "pod"
program = "kubectl"
args = ["exec", "-i", "pod-1", "--", "codex", "exec-server", "--listen", "stdio"]
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from holdfast.client.links import ssh
from holdfast.errors import UsageError
from holdfast.rendezvous.credentials import check_header, check_registry, is_loopback

T = TypeVar("T")

LOCAL: Final = "local"
REMOTE: Final = "remote"  # name of the single environment that a variable defines
TIMEOUT_S: Final = 10.0
MAX_ID: Final = 64
MAX_TIMEOUT_S: Final = 2.0**64  # the largest value the reference can hold

_NOISE: Final = (
    "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL",
    "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
)
_ACCOUNT: Final = "CODEX_EXEC_SERVER_NOISE_CHATGPT_ACCOUNT_ID"
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
# What the reference's URI parser accepts: an authority with at most one colon outside of brackets.
_URL: Final = re.compile(
    r"wss?://(?:[\w.~!$&'()*+,;=-]*(?::[\w.~!$&'()*+,;=-]*)?@)*"
    r"(?:\[[^\]\s]*\]|[\w.~!$&'()*+,;=-]+|(?=:))(?::[\w.~!$&'()*+,;=-]*)?"
    r"(?:[/?][^\x00-\x20<>^`|#]*)?(?:#.*)?",
    re.ASCII,
)
_TOP: Final = ("default", "include_local", "environments")
_ENTRY: Final = (
    "id",
    "skills",
    "url",
    "auth_bearer_token",
    "auth_bearer_token_file",
    "registry_url",
    "environment_id",
    "program",
    "args",
    "env",
    "cwd",
    "connect_timeout_sec",
    "initialize_timeout_sec",
)
_BEHIND: Final = ("environment_id", "auth_bearer_token_file")


@dataclass(frozen=True, slots=True)
class EnvironmentEntry:
    """One environment: at `url`, behind the registry at `registry_url`, or a child `argv`.

    Members that may be secret are left out of the repr.
    """

    id: str
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    registry_url: str | None = None
    environment_id: str | None = None  # at the registry
    account_id: str | None = field(default=None, repr=False)
    argv: tuple[str, ...] = ()
    cwd: str | None = None
    environ: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    connect_timeout_s: float = TIMEOUT_S
    initialize_timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class EnvironmentList:
    """All environments besides `local`, in order, and the default one."""

    entries: tuple[EnvironmentEntry, ...] = ()
    include_local: bool = True
    default: str | None = LOCAL


def from_toml(text: str, *, source: str, folder: str) -> EnvironmentList:
    """Parse the file. `source` is its name, for messages; relative directories are resolved against `folder`.

    Raises:
        UsageError: it names the file and the mistake, never a token.
    """
    try:
        tree = tomllib.loads(text)
        return _parse_file(tree, folder)
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"{source}: not a TOML file: {exc}") from None
    except UsageError as exc:
        raise UsageError(f"{source}: {exc}", remedy=exc.remedy) from None


def from_variable(value: str | None) -> EnvironmentList:
    """Parse CODEX_EXEC_SERVER_URL: empty, `none`, or the address of the only environment."""
    url = (value or "").strip()
    if not url:
        return EnvironmentList()
    if url.lower() == "none":
        return EnvironmentList((), False, None)
    return EnvironmentList((EnvironmentEntry(REMOTE, url),), False, REMOTE)


def from_noise_variables(environ: Mapping[str, str]) -> EnvironmentList | None:
    """Parse CODEX_EXEC_SERVER_NOISE_*: the only environment, behind a registry; None if none of them is set.

    Raises:
        UsageError: some of them are missing, or a value is invalid.
    """
    url, id_, token, account = (environ.get(name, "").strip() for name in (*_NOISE, _ACCOUNT))
    if not (url or id_ or token):
        return None
    for name, value in zip(_NOISE, (url, id_, token), strict=True):
        if not value:
            raise UsageError(f"{name} is not set, and the others of its kind are", remedy="set all or none")
    check_registry(url, id_)
    entry = EnvironmentEntry(
        REMOTE,
        token=check_header(token, _NOISE[2]),
        registry_url=url,
        environment_id=id_,
        account_id=check_header(account, _ACCOUNT) if account else None,
    )
    return EnvironmentList((entry,), False, REMOTE)


def check_token(url: str, token: str) -> None:
    """Raises: UsageError: the token could be read on the way, or has characters that no header can carry."""
    if not (url.startswith("wss://") or is_loopback(url)):
        raise UsageError(
            "a token needs wss:// or a loopback address", remedy="use wss://, or a tunnel that ends here"
        )
    if any((char < " " and char != "\t") or char == "\x7f" for char in token):
        raise UsageError("the token has characters no header can carry", remedy="remove newlines from it")


# --- the tree


def _parse_file(tree: Mapping[str, object], folder: str) -> EnvironmentList:
    _check_keys(tree, _TOP, "the file")
    default = _text(tree, "default", "the file")
    include_local = _value(tree, "include_local", bool, "true or false", "the file")
    tables = tree.get("environments", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError("environments: must be tables [[environments]]")
    entries = tuple(_entry(table, folder) for table in tables)
    ids = [entry.id for entry in entries]
    for id_ in ids:
        if ids.count(id_) > 1:
            raise UsageError(f"environment {id_}: there are several of this id")
    if include_local is not False:
        ids.append(LOCAL)
    return EnvironmentList(entries, include_local is not False, _default(default, ids))


def _default(default: str | None, ids: list[str]) -> str | None:
    if default is None:
        return LOCAL if LOCAL in ids else None
    name = default.strip()
    if not name:
        raise UsageError("default: must not be empty", remedy='write "none" for no default')
    if name.lower() == "none":
        return None
    if name not in ids:
        raise UsageError(f"default: there is no environment {name}")
    return name


def _entry(table: Mapping[str, object], folder: str) -> EnvironmentEntry:
    id_ = _id(_text(table, "id", "an environment"))
    where = f"environment {id_}"
    _check_keys(table, _ENTRY, where)
    _check_skills(table, where)
    url, program = _text(table, "url", where), _text(table, "program", where)
    registry = _text(table, "registry_url", where)
    if [url, program, registry].count(None) != 2:
        raise UsageError(f"{where}: must have either url or registry_url or program")
    connect = _seconds(table, "connect_timeout_sec", where)
    initialize = _seconds(table, "initialize_timeout_sec", where)
    if program is not None:
        _refuse(table, ("connect_timeout_sec", "auth_bearer_token"), "url", where)
        _refuse(table, _BEHIND, "registry_url", where)
        if not program.strip():
            raise UsageError(f"{where}: program: must not be empty")
        return EnvironmentEntry(
            id_,
            argv=(program.strip(), *_texts(table, "args", where)),
            cwd=_directory(_text(table, "cwd", where), folder),
            environ=_environ(table, where),
            initialize_timeout_s=initialize,
        )
    _refuse(table, ("args", "env", "cwd"), "program", where)
    if registry is not None:
        return _behind_registry(table, id_, registry, folder, (connect, initialize))
    _refuse(table, _BEHIND, "registry_url", where)
    address, token = _address(url or "", where), _text(table, "auth_bearer_token", where)
    if address.startswith(ssh.SCHEME) and "initialize_timeout_sec" not in table:
        initialize = ssh.INITIALIZE_S
    if token is not None:
        check_token(address, token)
    return EnvironmentEntry(
        id_,
        address,
        token,
        connect_timeout_s=connect,
        initialize_timeout_s=initialize,
    )


def _behind_registry(
    table: Mapping[str, object], id_: str, url: str, folder: str, timeouts: tuple[float, float]
) -> EnvironmentEntry:
    where = f"environment {id_}"
    token, file = _text(table, "auth_bearer_token", where), _text(table, "auth_bearer_token_file", where)
    if (token is None) == (file is None):
        raise UsageError(f"{where}: must have either auth_bearer_token or auth_bearer_token_file")
    name = _text(table, "environment_id", where) or id_
    try:
        check_registry(url, name)
        token = token if token is None else check_header(token, "auth_bearer_token")
    except UsageError as exc:
        raise UsageError(f"{where}: {exc}", remedy=exc.remedy) from None
    return EnvironmentEntry(
        id_,
        token=token,
        token_file=_directory(file, folder),
        registry_url=url.strip(),
        environment_id=name.strip(),
        connect_timeout_s=timeouts[0],
        initialize_timeout_s=timeouts[1],
    )


def _id(id_: str | None) -> str:
    if id_ is None:
        raise UsageError("an environment has no id")
    if not _ID.fullmatch(id_) or len(id_) > MAX_ID:
        raise UsageError(
            f"{id_[: 2 * MAX_ID]!r} is no name: it has 1 to {MAX_ID} ASCII letters, digits, - and _"
        )
    if id_ == LOCAL or id_.lower() == "none":
        raise UsageError(f"the id {id_} is reserved")
    return id_


def _address(url: str, where: str) -> str:
    address = url.strip()
    if address.startswith(ssh.SCHEME):
        try:
            ssh.parse(address)
        except UsageError as exc:
            raise UsageError(f"{where}: url: {exc}", remedy=exc.remedy) from None
        return address
    if not address.startswith(("ws://", "wss://")):
        raise UsageError(f"{where}: url: must begin with ws://, wss:// or ssh://")
    if not _URL.fullmatch(address):
        raise UsageError(f"{where}: url: is not an address")
    return address


def _directory(cwd: str | None, folder: str) -> str | None:
    if cwd is None or cwd.startswith("/"):
        return cwd
    return f"{folder.rstrip('/')}/{cwd}"


def _environ(table: Mapping[str, object], where: str) -> tuple[tuple[str, str], ...]:
    given = _value(table, "env", dict, "a table of texts", where) or {}
    if not all(isinstance(value, str) for value in given.values()):
        raise UsageError(f"{where}: env: must be a table of texts")
    return tuple(given.items())


def _check_skills(table: Mapping[str, object], where: str) -> None:
    """Check the reference's own key `skills`, so that a file with it is accepted; its value is not used."""
    skills = _value(table, "skills", dict, "a table", where) or {}
    _check_keys(skills, ("required",), f"{where}: skills")
    _texts(skills, "required", f"{where}: skills")


def _refuse(table: Mapping[str, object], keys: tuple[str, ...], needed: str, where: str) -> None:
    for key in keys:
        if key in table:
            raise UsageError(f"{where}: {key}: only with {needed}")


def _check_keys(table: Mapping[str, object], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise UsageError(f"{where}: unknown key {key[:MAX_ID]!r}; there are {', '.join(keys)}")


def _value(table: Mapping[str, object], key: str, kind: type[T], what: str, where: str) -> T | None:
    value = table.get(key)
    if value is None or isinstance(value, kind):
        return value
    raise UsageError(f"{where}: {key}: must be {what}")


def _text(table: Mapping[str, object], key: str, where: str) -> str | None:
    return _value(table, key, str, "text", where)


def _texts(table: Mapping[str, object], key: str, where: str) -> list[str]:
    words = _value(table, key, list, "a list of texts", where) or []
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"{where}: {key}: must be a list of texts")
    return words


def _seconds(table: Mapping[str, object], key: str, where: str) -> float:
    value = table.get(key, TIMEOUT_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_TIMEOUT_S:
        raise UsageError(f"{where}: {key}: must be a number of seconds, not below 0")
    return float(value)
