"""The YAML of skills: the front matter of SKILL.md and the metadata file beside it.

YAML trees are composed but never constructed: no tag can create an object, an alias costs nothing, and a
scalar keeps its spelling (a skill may be called `010` or `yes`). The pure-Python parser is used on purpose:
the C parser overflows its stack on deep nesting.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeVar

import yaml

from holdfast.wire.discovery import SkillDependencies, SkillPolicy, ToolDependency

MAX_YAML_CHARS: Final = 64 << 10  # about half a second of parsing, and far above any real document
MAX_NAME_CHARS: Final = 64  # names, and the type and transport of a tool
MAX_TEXT_CHARS: Final = 1024  # the other fields of a tool

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_PRODUCTS: Final = {
    spelling: name for name in ("codex", "chatgpt", "atlas") for spelling in (name, name.upper())
}
_INTERFACE: Final = (
    "display_name",
    "short_description",
    "icon_small",
    "icon_large",
    "brand_color",
    "default_prompt",
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half a character: YAML can escape it, JSON cannot hold it
_ENTRY: Final = re.compile(r"(\s*(?:- +)*[\w.-]+: +)([^'\"|>\s].*)")

_Kind = TypeVar("_Kind", bound=yaml.Node)


class _Unusable(Exception):
    """The document does not have the known form."""


@dataclass(frozen=True, slots=True)
class Front:
    name: str
    description: str
    short_description: str | None


@dataclass(frozen=True, slots=True)
class SkillMetadata:
    dependencies: SkillDependencies | None = None
    policy: SkillPolicy | None = None


def front_matter(text: str, *, fallback_name: str) -> Front | None:
    """Parse the front matter of a SKILL.md, between its `---` lines; None if it is not usable."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if line.strip() == "---"][:2]
    if len(fences) < 2 or fences[0] != 0:
        return None
    head = lines[1 : fences[1]]
    for attempt in (head, [_quote(line) for line in head]):
        try:
            return _front("\n".join(attempt), fallback_name)
        except _Unusable:
            continue
    return None


def metadata(text: str) -> SkillMetadata:
    """Dependencies and policy of an `agents/openai.yaml`; one mistake in it, and all of it is ignored."""
    try:
        document = _mapping(_compose(text))
        interface = _mapping(document.get("interface"))
        for key in _INTERFACE:
            _text(interface.get(key))
        return SkillMetadata(_dependencies(document.get("dependencies")), _policy(document.get("policy")))
    except _Unusable:
        return SkillMetadata()


def _front(text: str, fallback_name: str) -> Front:
    document = _mapping(_compose(text))
    name = _text(document.get("name")) or _one_line(fallback_name)
    description = _text(document.get("description"))
    extra = document.get("metadata")
    short = None if _is_empty(extra) else _text(_mapping(extra, null=False).get("short-description"))
    if not description or len(name) > MAX_NAME_CHARS:
        raise _Unusable
    return Front(name, description, short)


def _quote(line: str) -> str:
    """Quote a value such as `Use when: …`, or one with tabs: people write it, but it is not YAML."""
    entry = _ENTRY.fullmatch(line.replace("\t", " "))
    if not entry:
        return line
    key, value = entry.groups()
    value, mark, comment = value.partition(" #")
    value = value.rstrip()
    closing = {"[": "]", "{": "}"}.get(value[0], "")
    if ": " in value or value[0] in "@`" or not value.endswith(closing):
        value = "'" + value.replace("'", "''") + "'"
    return key + value + mark + comment


def _dependencies(node: yaml.Node | None) -> SkillDependencies | None:
    tools = []
    listed = _mapping(node).get("tools")
    for item in [] if _is_empty(listed) else _sequence(listed):
        tool = _mapping(item, null=False)
        oauth = _mapping(tool.get("oauth"))
        if {"callback_port", "callbackPort"} <= oauth.keys():
            raise _Unusable
        kind = _read_bounded(tool.get("type"), MAX_NAME_CHARS)
        value = _read_bounded(tool.get("value"), MAX_TEXT_CHARS)
        dependency = ToolDependency(
            type=kind or "",
            value=value or "",
            description=_read_bounded(tool.get("description"), MAX_TEXT_CHARS),
            transport=_read_bounded(tool.get("transport"), MAX_NAME_CHARS),
            command=_read_bounded(tool.get("command"), MAX_TEXT_CHARS),
            url=_read_bounded(tool.get("url"), MAX_TEXT_CHARS),
            oauth_callback_port=_port(oauth.get("callback_port", oauth.get("callbackPort"))),
        )
        if kind and value:
            tools.append(dependency)
    return SkillDependencies(tools) if tools else None


def _policy(node: yaml.Node | None) -> SkillPolicy | None:
    if _is_null(node):
        return None
    policy = _mapping(node)
    allow = policy.get("allow_implicit_invocation")
    listed = policy.get("products")
    try:
        return SkillPolicy(
            allow_implicit_invocation=None if _is_null(allow) else _BOOLS[_plain(allow)],
            products=[] if _is_empty(listed) else [_PRODUCTS[_scalar(item)] for item in _sequence(listed)],
        )
    except KeyError:
        raise _Unusable from None


def _port(node: yaml.Node | None) -> int | None:
    if _is_null(node):
        return None
    digits = _plain(node)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 5 or int(digits) > 65535:
        raise _Unusable
    return int(digits)


def _compose(text: str) -> yaml.Node | None:
    if len(text) > MAX_YAML_CHARS:
        raise _Unusable
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as exc:
        raise _Unusable from exc
    return node


def _mapping(node: yaml.Node | None, *, null: bool = True) -> dict[str, yaml.Node]:
    """The members by key; none if the node is absent or, with `null`, null."""
    if null and _is_null(node):
        return {}
    members: dict[str, yaml.Node] = {}
    for key, value in _expect(node, yaml.MappingNode).value:
        name = _scalar(key)
        if name in members:
            raise _Unusable
        members[name] = value
    return members


def _sequence(node: yaml.Node | None) -> list[yaml.Node]:
    return list(_expect(node, yaml.SequenceNode).value)


def _scalar(node: yaml.Node | None) -> str:
    text = str(_expect(node, yaml.ScalarNode).value)
    if _SURROGATE.search(text):
        raise _Unusable
    return text


def _plain(node: yaml.Node | None) -> str:
    if _expect(node, yaml.ScalarNode).style is not None:
        raise _Unusable
    return _scalar(node)


def _expect(node: yaml.Node | None, kind: type[_Kind]) -> _Kind:
    if not isinstance(node, kind):
        raise _Unusable
    return node


def _text(node: yaml.Node | None) -> str | None:
    """One line of text; None if absent, null or blank."""
    return None if _is_null(node) else _one_line(_scalar(node)) or None


def _read_bounded(node: yaml.Node | None, max_chars: int) -> str | None:
    text = _text(node)
    return text if text and len(text) <= max_chars else None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _is_null(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULLS)


def _is_empty(node: yaml.Node | None) -> bool:
    """Whether it is absent or `key:` with nothing after it; a written-out null does not count for a list."""
    return node is None or (isinstance(node, yaml.ScalarNode) and node.style is None and node.value == "")
