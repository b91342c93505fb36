"""The keys of the Codex CLI's configuration that we own, and the values decided for them. Pure module.

Every owned key belongs to one block, so that each concern can be moved and migrated alone. The order of the
keys is fixed: the same decision always yields the same bytes.

In TOML a block is between two comment lines. The first contains a digest of the lines between them, so that a
later change by another program or the user is detected. What we take out of the user's content stays in place
as a comment, below a line with the reason, and can be restored byte for byte.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, TypeAlias

from holdfast.errors import UsageError

Value: TypeAlias = bool | str | int | tuple[str, ...]
Key: TypeAlias = tuple[str, ...]

BLOCKS: Final = ("sandbox", "trust", "features", "environment")
PROFILE: Final = "holdfast"  # our only permission profile; a user's profile of that name is refused

_SCALARS: Final[tuple[tuple[Key, str], ...]] = (
    (("sandbox_mode",), "sandbox"),
    (("default_permissions",), "sandbox"),
    (("approval_policy",), "sandbox"),
    (("sandbox_workspace_write", "network_access"), "sandbox"),
    (("sandbox_workspace_write", "writable_roots"), "sandbox"),
    (("sandbox_workspace_write", "exclude_slash_tmp"), "sandbox"),
    (("sandbox_workspace_write", "exclude_tmpdir_env_var"), "sandbox"),
    (("check_for_update_on_startup",), "features"),
    (("features", "memories"), "features"),
    (("features", "multi_agent"), "features"),
    (("features", "unbounded_connection_retries"), "features"),
    (("features", "network_proxy"), "features"),
)
_PLACES: Final = {key: place for place, (key, _) in enumerate(_SCALARS)}
_BLOCK_OF_SCALAR: Final = dict(_SCALARS)
FORMAT: Final = 1  # version of the marks; older ones are migrated
OUT: Final = "#: "  # before each line that was taken out

_DIGEST_CHARS: Final = 12  # enough to detect a change; it does not prevent one
_NAMES: Final = "|".join(BLOCKS)
_DIGEST: Final = rf"[0-9a-f]{{{_DIGEST_CHARS}}}"
_BEGIN: Final = re.compile(rf"# >>> holdfast ({_NAMES}) v(\d{{1,4}})(?: ({_DIGEST}))? >>>.*")
_END: Final = re.compile(rf"# <<< holdfast ({_NAMES}) v(\d{{1,4}}) <<<")
_RECORD: Final = re.compile(r"# holdfast v\d{1,4} took out (\d{1,6}) lines?: .*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE: Final = re.compile(r'["\\\x00-\x1f\x7f]')
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_RIVALS: Final = {"sandbox_mode": "default_permissions", "default_permissions": "sandbox_mode"}
_BELOW_US: Final = "system"  # a layer below the user's; a rival set there has no effect


@dataclass(frozen=True, slots=True)
class Setting:
    """One owned key and its value."""

    key: Key
    value: Value


@dataclass(frozen=True, slots=True)
class Settings:
    """A decision as keys and values, in the fixed order; created by `settings`."""

    items: tuple[Setting, ...]

    def get(self, *key: str) -> Value | None:
        """The value of this key, if it is part of the decision."""
        return next((item.value for item in self.items if item.key == key), None)

    def of(self, block: str) -> tuple[Setting, ...]:
        """The settings in this block."""
        return tuple(item for item in self.items if block_of(item.key) == block)

    def replace(self, key: Key, value: Value) -> "Settings":
        """The same decision with another value for one key."""
        return settings([*(item for item in self.items if item.key != key), Setting(key, value)])

    def without(self, key: Key) -> "Settings":
        """The same decision without one key."""
        return Settings(tuple(item for item in self.items if item.key != key))


def settings(items: Iterable[Setting]) -> Settings:
    """Create settings in the fixed order.

    Raises:
        UsageError: a key is not ours, occurs twice, or a text cannot be written as TOML.
    """
    ordered = sorted(items, key=lambda item: _order(item.key))
    for item in ordered:
        _check(item)
    keys = [item.key for item in ordered]
    if len(set(keys)) != len(keys):
        raise UsageError("a setting is given twice")
    return Settings(tuple(ordered))


def block_of(key: Key) -> str:
    """The block that owns this key.

    Raises:
        UsageError: no block owns it.
    """
    if found := _block(key):
        return found
    raise UsageError(f"not a key of ours: {'.'.join(key)}")


def is_owned(key: Key) -> bool:
    """Whether this key is one that we write."""
    return _block(key) is not None


def _block(key: Key) -> str | None:
    match key:
        case _ if key in _BLOCK_OF_SCALAR:
            return _BLOCK_OF_SCALAR[key]
        case ("permissions", name, _, *_) if name == PROFILE:
            return "sandbox"
        case ("projects", _, "trust_level"):
            return "trust"
        case ("shell_environment_policy", _, *_):
            return "environment"
        case _:
            return None


def _order(key: Key) -> tuple[int, int, Key]:
    """Sort by block; known keys as listed, then those below a table of names, alphabetically."""
    return BLOCKS.index(block_of(key)), _PLACES.get(key, len(_PLACES)), key


def _check(item: Setting) -> None:
    texts = list(item.key)
    if isinstance(item.value, str):
        texts.append(item.value)
    elif isinstance(item.value, tuple):
        texts += item.value
    if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
        raise UsageError("TOML is UTF-8: a name that is not cannot be configured")


class Begin(NamedTuple):
    """The first line of a block."""

    name: str
    version: int
    digest: str | None


def render_string(text: str) -> str:
    """A basic string of TOML."""
    escaped = _UNSAFE.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04X}"), text)
    return f'"{escaped}"'


def render_key(path: Key) -> str:
    """A dotted key; parts that are not bare keys are quoted."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else render_string(part) for part in path)


def render_value(of: Value) -> str:
    """A value on one line."""
    match of:
        case bool():
            return "true" if of else "false"
        case int():
            return str(of)
        case str():
            return render_string(of)
        case tuple():
            return f"[{', '.join(map(render_string, of))}]"


def render_block(name: str, body: list[str], newline: str) -> str:
    """A complete block, each line with its line end."""
    inner = "".join(line + newline for line in body)
    begin = f"# >>> holdfast {name} v{FORMAT} {digest(inner)} >>> written by holdfast, again at every apply"
    return f"{begin}{newline}{inner}# <<< holdfast {name} v{FORMAT} <<<{newline}"


def digest(body: str) -> str:
    """Digest of the lines between the marks. CRLF counts as LF, because Codex converts it."""
    return hashlib.sha256(body.replace("\r\n", "\n").encode()).hexdigest()[:_DIGEST_CHARS]


def render_record(source: str, reason: str, newline: str) -> str:
    """These lines as comments, below a line with the reason."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    counted = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    why = f"# holdfast v{FORMAT} took out {counted}: {reason}{newline}"
    return why + "".join(OUT + line for line in lines)


def parse_begin(comment: str) -> Begin | None:
    """Parse the begin mark of a block, of any version; None if it is none."""
    found = _BEGIN.fullmatch(comment.rstrip("\r\n"))
    return Begin(found[1], int(found[2]), found[3]) if found else None


def parse_end(comment: str) -> str | None:
    """Parse the end mark of a block; return the block's name, or None."""
    found = _END.fullmatch(comment.rstrip("\r\n"))
    return found[1] if found else None


def parse_record(comment: str) -> int | None:
    """Parse the line above taken-out lines; return their number, or None."""
    found = _RECORD.fullmatch(comment.rstrip("\r\n"))
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Effective:
    """The values as an agent reads them, flat, lists as tuples; `origins` names the layers that set them."""

    values: Mapping[Key, object]
    origins: Mapping[str, str]

    def origin(self, key: Key) -> str:
        """The layer that set this key; for a value inside another, the closest one reported."""
        for length in range(len(key), 0, -1):
            if found := self.origins.get(".".join(key[:length])):
                return found
        return next((told for name, told in self.origins.items() if name.startswith(".".join(key) + ".")), "")

    def typed(self, mode: str) -> "Effective":
        """The values with `-s` on the launch line; it overrides all files and `-c`, in either vocabulary."""
        values = {key: value for key, value in self.values.items() if key != ("default_permissions",)}
        origins = {name: told for name, told in self.origins.items() if name != "default_permissions"}
        return Effective({**values, ("sandbox_mode",): mode}, {**origins, "sandbox_mode": "-s"})


@dataclass(frozen=True, slots=True)
class ConfigDrift:
    """One key whose value differs from the decision; None means "not set"."""

    key: Key
    decided: object
    found: object
    origin: str

    def __str__(self) -> str:
        origin = f", from {self.origin}" if self.origin else ""
        return f"{render_key(self.key)} is {_words(self.found)}{origin}; decided was {_words(self.decided)}"

    def report(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self) | {"origin": self.origin or None}


def flatten(tree: object, above: Key = ()) -> Iterator[tuple[Key, object]]:
    """The leaves of a tree of objects, without unset ones."""
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from flatten(below, (*above, str(name)))
    elif isinstance(tree, list):
        yield above, tuple(tree)
    elif tree is not None:
        yield above, tree


def differences(decided: Settings, effective: Effective) -> list[ConfigDrift]:
    """Where the values in force differ from the decision, including additions to it."""
    found = []
    for item in decided.items:
        value = effective.values.get(item.key)
        if value != item.value or isinstance(value, bool) != isinstance(item.value, bool):
            found.append(ConfigDrift(item.key, item.value, value, effective.origin(item.key)))
    keys = {item.key for item in decided.items}
    for ours, rival in _RIVALS.items():
        value = effective.values.get((rival,))
        if (ours,) in keys and value is not None and not effective.origin((rival,)).startswith(_BELOW_US):
            found.append(ConfigDrift((rival,), None, value, effective.origin((rival,))))
    for key, value in effective.values.items():
        if key[:2] == ("permissions", PROFILE) and key not in keys and ("default_permissions",) in keys:
            found.append(ConfigDrift(key, None, value, effective.origin(key)))
    return found


def _words(value: object) -> str:
    if isinstance(value, bool | int | str):
        return render_value(value)
    if isinstance(value, tuple):
        return render_value(tuple(str(each) for each in value))
    return "not set" if value is None else str(value)
