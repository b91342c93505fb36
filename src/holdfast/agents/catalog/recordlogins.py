"""What a record may declare about its CLI's own settings and login. Pure module.

The files that enter the sandbox must lie within the state that the record declares. Only trusted records may
name places where credentials are kept: a record that we ship, or a user's record of the same name, for the
same CLI.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.hostfiles import HostFile, Renewal, Way
from holdfast.agents.catalog.recordreader import RecordReader, is_unsafe
from holdfast.sandbox.policy.credentials import CREDENTIALS

_WAYS: Final = {"shown": Way.SHOWN, "copied": Way.COPIED, "renewed": Way.RENEWED}
_KEY: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class Vouched:
    """Who wrote a record: we (`ours`) or the user. `like` is our record of the same name, if there is one."""

    ours: bool = False
    like: Agent | None = None

    def find_foreign(self, path: str) -> str | None:
        """Return a credential directory of another program that contains this path or lies below it.

        Both are relative to the home. None if there is no such directory.
        """
        own = [file.path for file in self.like.host_files] if self.like is not None else []
        return next(
            (
                place
                for place in (() if self.ours else CREDENTIALS)
                if (f"{place}/".startswith(f"{path}/") or f"{path}/".startswith(f"{place}/"))
                and not any(f"{file}/".startswith(f"{place}/") for file in own)
            ),
            None,
        )


NOBODY: Final = Vouched()


class _HostFile(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    into: str
    way: str
    what: str
    variable: str = ""
    below: str = ""
    keep: list[str] = []
    drop: list[str] = []
    renewal: dict[str, Any] | None = None


class _Renewal(msgspec.Struct, forbid_unknown_fields=True):
    refresh: str
    tokens: list[str]
    expires: str
    at: str = ""
    unset: list[str] = []


def read_keys(reader: RecordReader, keys: Sequence[str], vouched: Vouched) -> tuple[str, ...]:
    """Read the variables that hold its key. A user's record may name only those of our record of its name.

    Raises:
        UsageError: the record names other variables, or an invalid name.
    """
    allowed = vouched.like.keys if vouched.like is not None else ()
    for key in keys:
        if not _KEY.fullmatch(key):
            raise reader.wrong("keys", f"`{key}` is not the name of a variable")
        if not vouched.ours and key not in allowed:
            raise reader.wrong("keys", f"`{key}` is not the record's to take", "worker run --pass NAME")
    return tuple(keys)


def read_host_file(reader: RecordReader, key: str, row: dict[str, Any], agent: Agent) -> HostFile:
    """Read a user file that the CLI is given. It must lie within the state that the record declares.

    Raises:
        UsageError: it lies elsewhere, or the row is invalid.
    """
    table = reader.convert(row, _HostFile, key)
    root, _, path = table.path.partition("/")
    if root != "{home}" or is_unsafe(path):
        raise reader.wrong(f"{key}.path", "is not below the home", "{home}/NAME")
    if not any(f"{table.path}/".startswith(f"{kept.path}/") for kept in agent.state):
        raise reader.wrong(f"{key}.path", "is not among the `state` of this record")
    if is_unsafe(table.into):
        raise reader.wrong(f"{key}.into", "is not a path below the state directory")
    if table.variable and table.variable not in agent.relocation:
        raise reader.wrong(f"{key}.variable", "is not among `relocation`", agent.relocation)
    if bool(table.variable) != bool(table.below):
        raise reader.wrong(f"{key}.below", "goes with `variable`")
    if table.below and (is_unsafe(table.below) or not f"/{path}".endswith(f"/{table.below}")):
        raise reader.wrong(f"{key}.below", "is not the end of `path`")
    way = _WAYS[reader.choose(f"{key}.way", table.way, _WAYS)]
    if not table.what:
        raise reader.wrong(f"{key}.what", "is empty", "what it is, for people")
    if (way is Way.RENEWED) != (table.renewal is not None):
        raise reader.wrong(f"{key}.renewal", 'goes with way = "renewed"')
    return HostFile(
        path=path,
        into=table.into,
        way=way,
        what=table.what,
        variable=table.variable,
        below=table.below,
        keep=tuple(table.keep),
        drop=tuple(table.drop),
        renewal=None if table.renewal is None else _read_renewal(reader, f"{key}.renewal", table.renewal),
    )


def _read_renewal(reader: RecordReader, key: str, tree: dict[str, Any]) -> Renewal:
    table = reader.convert(tree, _Renewal, key)
    for name in (table.refresh, table.expires):
        if name not in table.tokens:
            raise reader.wrong(f"{key}.tokens", f"`{name}` is not among them")
    return Renewal(
        refresh=table.refresh,
        tokens=tuple(table.tokens),
        expires=table.expires,
        at=table.at,
        unset=tuple(table.unset),
    )
