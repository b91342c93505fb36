"""The keys of the Codex CLI's configuration that we own, and the values decided for them. Pure module.

Every owned key belongs to one block, so that each concern can move and migrate alone. The order of
the keys is fixed: the same decision is always the same bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.errors import UsageError

Value: TypeAlias = bool | str | int | tuple[str, ...]
Key: TypeAlias = tuple[str, ...]

BLOCKS: Final = ("sandbox", "trust", "features", "environment")
PROFILE: Final = "holdfast"  # the one permission profile that is ours; a user's of that name is refused

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


@dataclass(frozen=True, slots=True)
class Setting:
    """One owned key and its value."""

    key: Key
    value: Value


@dataclass(frozen=True, slots=True)
class Settings:
    """A decision as keys and values, in the fixed order; made by `settings`."""

    items: tuple[Setting, ...]

    def get(self, *key: str) -> Value | None:
        """The value of this key, if it is part of the decision."""
        return next((item.value for item in self.items if item.key == key), None)

    def of(self, block: str) -> tuple[Setting, ...]:
        """What belongs into this block."""
        return tuple(item for item in self.items if block_of(item.key) == block)

    def replace(self, key: Key, value: Value) -> "Settings":
        """The same decision with another value for one key."""
        return settings([*(item for item in self.items if item.key != key), Setting(key, value)])

    def without(self, key: Key) -> "Settings":
        """The same decision with nothing to say about one key."""
        return Settings(tuple(item for item in self.items if item.key != key))


def settings(items: Iterable[Setting]) -> Settings:
    """These settings in the fixed order.

    Raises:
        UsageError: a key is not ours, is there twice, or something in it cannot be written as TOML.
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
        UsageError: nobody owns it.
    """
    if found := _block(key):
        return found
    raise UsageError(f"not a key of ours: {'.'.join(key)}")


def is_owned(key: Key) -> bool:
    """May we write this key?"""
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
    """Blocks in their order; known keys as listed, then what is below a table of names, sorted."""
    return BLOCKS.index(block_of(key)), _PLACES.get(key, len(_PLACES)), key


def _check(item: Setting) -> None:
    texts = list(item.key)
    if isinstance(item.value, str):
        texts.append(item.value)
    elif isinstance(item.value, tuple):
        texts += item.value
    if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
        raise UsageError("TOML is UTF-8: a name that is not cannot be configured")
