"""What of its user's configuration and logins an agent CLI is given when its state is relocated. Pure module.

Three ways: a file is *shown* where it is, read-only; *copied* into the relocated state, without the settings
that start programs; or, for a login whose refresh token is spent by using it, copied *and written back*. Of
what a worker left in such a copy nothing is believed but a renewal of the tokens that were there before, of
the same account and valid for longer.
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
MAX_LOGIN: Final = 64 << 10  # likewise of a login, also of what a worker left there
_SECRET_LENGTH: Final = 12  # shorter ones would be found in innocent words
_END_OF_TIME: Final = 1e15  # ms; JSON has larger numbers, and some that are none
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
    """What a worker left is not taken for a renewal; the words say why."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a login is renewed. Names are dotted; those of the tokens are below each place that `at` names.

    `expires` holds milliseconds since 1970, or is a JWT with a claim that says so. `whose` are claims that
    stay the same in every JWT among `tokens`.
    """

    refresh: str
    tokens: tuple[str, ...]  # all that a renewal changes, the refresh token among them
    expires: str
    at: str = ""  # empty: the document; `*`: every member of it
    whose: tuple[Place, ...] = ()
    unset: tuple[str, ...] = ()  # variables that would keep the CLI from using such a login


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file or directory of the user: where it is, where a relocated CLI looks for it, and how it enters."""

    path: str  # below the home
    into: str  # below the state directory
    way: Way
    what: str
    variable: str = ""  # that says where the CLI's directory is, if its user moved it
    below: str = ""  # where it is below that
    keep: tuple[str, ...] = ()  # of its settings only these, dotted; none: all
    drop: tuple[str, ...] = ()  # but not these: they start programs, or hold the secrets of others
    renewal: Renewal | None = None

    @property
    def parts(self) -> Place:
        return tuple(self.into.split("/"))

    @property
    def limit(self) -> int:
        return MAX_FILE if self.renewal is None else MAX_LOGIN

    def find(self, home: str, environment: Mapping[str, str]) -> str:
        """Where it is for a user with these variables."""
        moved = environment.get(self.variable) if self.variable else None
        return f"{moved.rstrip('/')}/{self.below}" if moved else f"{home.rstrip('/')}/{self.path}"


def read_settings(name: str, text: str) -> Document:
    """A file of settings: TOML, or JSON with the comments and commas that people leave in it.

    Raises:
        ValueError: it is neither.
    """
    try:
        found = tomllib.loads(text) if name.endswith(".toml") else json.loads(_plain_json(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no table")
    return found


def write_settings(name: str, document: Document) -> str:
    """The same as text.

    Raises:
        ValueError: it holds what cannot be written.
    """
    if not name.endswith(".toml"):
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in document.items())


def is_settings(name: str) -> bool:
    """Does it hold settings that can be taken apart, rather than text?"""
    return name.endswith((".json", ".jsonc", ".toml"))


def select_settings(file: HostFile, document: Document) -> tuple[Document, list[str]]:
    """What of a file enters, and the names of what was left out of a file that enters whole otherwise."""
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
    """Both, table by table; `over` wins."""
    made = dict(under)
    for key, value in over.items():
        before = made.get(key)
        made[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return made


# --- logins


def is_renewable(document: Document, renewal: Renewal) -> bool:
    """Does it hold a refresh token? A key does not change by being used."""
    return any(_refresh(document, place, renewal) for place in _entries(document, renewal))


def lend(document: Document, renewal: Renewal) -> Document:
    """A copy that can be used until it expires, and not be renewed."""
    lent = copy.deepcopy(document)
    for place in _entries(document, renewal):
        if _refresh(document, place, renewal):
            _put(lent, (*place, *renewal.refresh.split(".")), "")
    return lent


def expires_at(document: Document, renewal: Renewal) -> float | None:
    """When the first of its renewable tokens expires; None where nobody knows."""
    found = [
        at
        for place in _entries(document, renewal)
        if _refresh(document, place, renewal)
        and (at := _expiry(_get(document, (*place, *renewal.expires.split("."))))) is not None
    ]
    return min(found, default=None)


def renew(before: Document, after: object, renewal: Renewal, *, now: float) -> Document | None:
    """The login with the tokens that a worker's CLI renewed; None when it renewed none.

    Everything else in `after` is not looked at.

    Raises:
        NotRenewed: some of it is not what a renewal looks like.
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
    """A number as people mean it: neither endless nor none at all."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _END_OF_TIME else None


def _claims(token: object, whose: tuple[Place, ...]) -> list[object]:
    payload = _payload(token)
    return [_get(payload, place) for place in whose]


def _payload(token: object) -> Document:
    """What a JWT says, whoever signed it; empty for anything else."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def find_tokens(document: object) -> Iterator[str]:
    """Everything in a login that may be a secret: what nobody would read aloud."""
    if isinstance(document, dict):
        for value in document.values():
            yield from find_tokens(value)
    elif isinstance(document, str) and len(document) >= _SECRET_LENGTH and _TOKEN.fullmatch(document):
        yield document


def find_keys(text: str) -> list[str]:
    """What is given a name as of a key in settings of whatever kind: YAML, JSON, NAME=VALUE."""
    return [found[1] for found in _NAMED_KEY.finditer(text[:MAX_FILE])]


# --- documents


def find_places(document: Document, dotted: str) -> Iterator[Place]:
    """Where something of this dotted name is; `*` in it stands for any name."""
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
    """What is there by this dotted name; `*` stands for any name, and lists are looked through."""
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
    """A value on one line. JSON writes strings as TOML does, but for one character."""
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
