"""The user's configuration and logins that an agent CLI gets when its state is relocated. Pure module.

A file enters in one of three ways. It is *shown* where it is, read-only. It is *copied* into the relocated
state, without the settings that start programs. Or it is copied *and written back*: this is for a login with
a refresh token that can be used only once. From what a worker left in such a copy we accept only a renewal of
the tokens that were there before, for the same account and valid for longer.
"""

import base64
import binascii
import copy
import enum
import fnmatch
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Document: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, ...]

MAX_FILE: Final = 1 << 20  # bytes of one file that is copied: settings are some kilobytes
MAX_LOGIN: Final = 64 << 10  # bytes of a login, also of the copy that a worker left
_SECRET_LENGTH: Final = 12  # shorter secrets would match ordinary words
_END_OF_TIME: Final = 1e15  # ms; JSON numbers can be larger, or not finite
_MAX_TOKEN: Final = 16 << 10
_MAX_AHEAD_S: Final = 400 * 86400.0  # no token is valid for longer
_TOKEN: Final = re.compile(r"[!-~]+")
_NAMED_KEY: Final = re.compile(
    r"""(?:key|token|secret|password)\w{0,40}["']?[ \t]{0,8}[:=][ \t]{0,8}["']?([!#-&(-+\--~]{12,4096})""",
    re.IGNORECASE,
)
_JSONC: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')


class Way(enum.StrEnum):
    SHOWN = "shown read-only"
    COPIED = "copied"
    RENEWED = "copied and written back"


class NotRenewed(ValueError):
    """The login that a worker left is not accepted as a renewal; the message says why."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a login is renewed. Names are dotted; the token names are below each place that `at` names.

    `expires` holds milliseconds since 1970, or is a JWT with an `exp` claim. `whose` are the claims that
    identify the account: they must stay the same in every JWT among `tokens`.
    """

    refresh: str
    tokens: tuple[str, ...]  # all fields that a renewal changes, including the refresh token
    expires: str
    at: str = ""  # empty: the document; `*`: each of its members
    whose: tuple[Place, ...] = ()
    unset: tuple[str, ...] = ()  # variables that would keep the CLI from using such a login


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file or directory of the user: where it is, where a relocated CLI looks for it, and how it enters."""

    path: str  # below the home
    into: str  # below the state directory
    way: Way
    what: str
    variable: str = ""  # the variable with the CLI's directory, if the user moved it
    below: str = ""  # path below that directory
    keep: tuple[str, ...] = ()  # dotted names of the only settings to keep; empty: all
    drop: tuple[str, ...] = ()  # settings to leave out: they start programs, or hold unrelated secrets
    renewal: Renewal | None = None

    @property
    def parts(self) -> Place:
        return tuple(self.into.split("/"))

    @property
    def limit(self) -> int:
        return MAX_FILE if self.renewal is None else MAX_LOGIN

    def find(self, home: str, environment: Mapping[str, str]) -> str:
        """Return its path for a user with these variables."""
        moved = environment.get(self.variable) if self.variable else None
        return f"{moved.rstrip('/')}/{self.below}" if moved else f"{home.rstrip('/')}/{self.path}"


def read_settings(name: str, text: str) -> Document:
    """Parse a settings file: TOML, or JSON that may have comments and trailing commas.

    Raises:
        ValueError: it is neither, is nested too deeply, or is not a table.
    """
    try:
        found = tomllib.loads(text) if name.endswith(".toml") else json.loads(_plain_json(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no table")
    return found


def write_settings(name: str, document: Document) -> str:
    """Serialise settings in the format that the file name implies.

    Raises:
        ValueError: the document holds a value that cannot be written.
    """
    if not name.endswith(".toml"):
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in document.items())


def is_settings(name: str) -> bool:
    """Return whether the file holds structured settings that can be filtered, rather than text."""
    return name.endswith((".json", ".jsonc", ".toml"))


def select_settings(file: HostFile, document: Document) -> tuple[Document, list[str]]:
    """Return the settings that enter, and the names of those that `drop` removed."""
    if file.keep:
        kept: Document = {}
        for place in (place for name in file.keep for place in find_places(document, name)):
            _put(kept, place, _get(document, place))
        return kept, []
    kept, left = copy.deepcopy(document), []
    for place in [place for name in file.drop for place in find_places(document, name)]:
        above = _get(kept, place[:-1])
        del above[place[-1]]
        left.append(".".join(place))
    return kept, left


def merge(under: Document, over: Document) -> Document:
    """Merge both, table by table; `over` wins."""
    made = dict(under)
    for key, value in over.items():
        before = made.get(key)
        made[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return made


# --- logins


def is_renewable(document: Document, renewal: Renewal) -> bool:
    """Return whether it holds a refresh token. An API key does not change when used."""
    return any(_refresh(document, place, renewal) for place in _entries(document, renewal))


def lend(document: Document, renewal: Renewal) -> Document:
    """Return a copy without refresh tokens: it works until it expires and cannot be renewed."""
    lent = copy.deepcopy(document)
    for place in _entries(document, renewal):
        if _refresh(document, place, renewal):
            _put(lent, (*place, *renewal.refresh.split(".")), "")
    return lent


def expires_at(document: Document, renewal: Renewal) -> float | None:
    """Return when the first of its renewable tokens expires; None if that is unknown."""
    found = [
        at
        for place in _entries(document, renewal)
        if _refresh(document, place, renewal)
        and (at := _expiry(_get(document, (*place, *renewal.expires.split("."))))) is not None
    ]
    return min(found, default=None)


def renew(before: Document, after: object, renewal: Renewal, *, now: float) -> Document | None:
    """Return the login with the tokens that a worker's CLI renewed; None if it renewed none.

    Everything else in `after` is ignored.

    Raises:
        NotRenewed: a changed token is not a plausible renewal.
    """
    if not isinstance(after, dict):
        raise NotRenewed("it is no login")
    made, changed = copy.deepcopy(before), False
    for place in _entries(before, renewal):
        if not _refresh(before, place, renewal):
            continue
        tokens = {(*place, *name.split(".")) for name in renewal.tokens}
        old = {one: _get(before, one) for one in tokens}
        new = {one: _get(after, one) for one in tokens}
        if new == old:
            continue
        expires = (*place, *renewal.expires.split("."))
        _judge(old, new, expires, renewal, now)
        for one, value in new.items():
            if value is not None:
                _put(made, one, value)
        changed = True
    return made if changed else None


def _judge(
    old: Mapping[Place, object], new: Mapping[Place, object], expires: Place, renewal: Renewal, now: float
) -> None:
    for place, value in new.items():
        name, was = ".".join(place), old[place]
        if was is not None and isinstance(value, str) is not isinstance(was, str):
            raise NotRenewed(f"{name} is missing, or of another kind")
        if isinstance(value, str):
            if len(value) > _MAX_TOKEN or not _TOKEN.fullmatch(value):
                raise NotRenewed(f"{name} is no token")
            if _claims(was, renewal.whose) != _claims(value, renewal.whose):
                raise NotRenewed(f"{name} is somebody else's")
        elif value is not None and _expiry(value) is None:
            raise NotRenewed(f"{name} is no token")
    until, before = _expiry(new[expires]), _expiry(old[expires])
    if until is None or until <= max(now, before or 0.0):
        raise NotRenewed("it is not valid for longer than what it would replace")
    if until > now + _MAX_AHEAD_S:
        raise NotRenewed("no token is valid for so long")


def _entries(document: Document, renewal: Renewal) -> list[Place]:
    return [()] if not renewal.at else list(find_places(document, renewal.at))


def _refresh(document: Document, place: Place, renewal: Renewal) -> bool:
    found = _get(document, (*place, *renewal.refresh.split(".")))
    return isinstance(found, str) and found != ""


def _expiry(value: object) -> float | None:
    """Seconds since 1970."""
    if isinstance(value, str):
        return _seconds(_payload(value).get("exp"))
    at = _seconds(value)
    return None if at is None else at / 1000


def _seconds(value: object) -> float | None:
    """Return a number that is finite and below the bound; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _END_OF_TIME else None


def _claims(token: object, whose: tuple[Place, ...]) -> list[object]:
    payload = _payload(token)
    return [_get(payload, place) for place in whose]


def _payload(token: object) -> Document:
    """Return the payload of a JWT, without verifying its signature; empty for anything else."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def find_tokens(document: object) -> Iterator[str]:
    """Yield every text in a login that may be a secret: a long one without spaces."""
    if isinstance(document, dict):
        for value in document.values():
            yield from find_tokens(value)
    elif isinstance(document, str) and len(document) >= _SECRET_LENGTH and _TOKEN.fullmatch(document):
        yield document


def find_keys(text: str) -> list[str]:
    """Return the values of settings with names like those of keys, in any format: YAML, JSON, NAME=VALUE."""
    return [found[1] for found in _NAMED_KEY.finditer(text[:MAX_FILE])]


# --- documents


def find_places(document: Document, dotted: str) -> Iterator[Place]:
    """Yield the places that match this dotted name; `*` in it stands for any name."""
    reached: list[Place] = [()]
    for part in dotted.split("."):
        reached = [
            (*place, name)
            for place in reached
            if isinstance(table := _get(document, place), dict)
            for name in table
            if fnmatch.fnmatchcase(name, part)
        ]
    yield from reached


def find_values(document: object, dotted: str) -> Iterator[object]:
    """Yield the values at this dotted name; `*` stands for any name, and lists are searched."""
    first, _, rest = dotted.partition(".")
    if isinstance(document, list):
        for item in document:
            yield from find_values(item, dotted)
    elif isinstance(document, dict):
        for name, value in document.items():
            if fnmatch.fnmatchcase(name, first):
                yield from find_values(value, rest) if rest else (value,)


def _get(document: object, place: Place) -> Any:
    for name in place:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _put(document: Document, place: Place, value: object) -> None:
    for name in place[:-1]:
        below = document.get(name)
        if not isinstance(below, dict):
            below = document[name] = {}
        document = below
    document[place[-1]] = value


def _plain_json(text: str) -> str:
    text = _JSONC.sub(lambda match: match[1] or " ", text.removeprefix("\ufeff"))
    return _TRAILING.sub(lambda match: match[1] or "", text)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: object) -> str:
    """Write a value on one line. JSON writes strings as TOML does, except for one character."""
    match value:
        case dict():
            return "{" + ", ".join(f"{_toml_key(key)} = {_toml(one)}" for key, one in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case bool() | int():
            return json.dumps(value)
        case float():
            return repr(value)
        case _:
            return str(value)  # a date or a time
