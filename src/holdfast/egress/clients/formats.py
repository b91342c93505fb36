"""The formats of clients' settings files, as far as they name hosts. Pure module.

What cannot be parsed is skipped: a file that its own client refuses names no hosts.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

_SECTION: Final = re.compile(r'\[\s*([^\s"\]]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_VARIABLE: Final = re.compile(r"\$\{([^}]+)\}")
_SUITE_LINE: Final = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?(\S+)")


def read_sections(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Rows of (section, its quoted part, key, value) of an INI file, as pip and git write it.

    An indented line continues the value before it, as in pip's lists, unless it looks like a setting of its
    own.
    """
    section = quoted = key = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if found := _SECTION.match(stripped):
            section, quoted, key = found[1].lower(), _unescape(found[2] or ""), ""
            stripped = stripped[found.end() :].strip()
            if not stripped:
                continue
        elif line[0].isspace() and key and not _begins_setting(stripped):
            yield section, quoted, key, stripped
            continue
        name, sign, value = _split_setting(stripped)
        if sign:
            key = name.strip().lower()
            yield section, quoted, key, value.strip().strip('"')


def _split_setting(line: str) -> tuple[str, str, str]:
    """Split at the first of the two signs: a URL has a colon as well."""
    at = min(
        (place for place in (line.find("="), line.find(": "), _last_colon(line)) if place > 0), default=0
    )
    return (line[:at], line[at], line[at + 1 :]) if at else (line, "", "")


def _last_colon(line: str) -> int:
    return len(line) - 1 if line.endswith(":") else -1


def _begins_setting(line: str) -> bool:
    name = _split_setting(line)[0]
    return name != line and "://" not in name


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def read_npmrc(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of an `.npmrc`, with `${NAME}` replaced; the last value of a name counts."""
    found = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped[:1] in ("", "#", ";", "["):
            continue
        name, sign, value = stripped.partition("=")
        if sign:
            plain = value.strip().strip("\"'")
            found[name.strip().strip("\"'")] = expand(plain, environ)
    return found


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace `${NAME}` where there is such a variable."""
    return _VARIABLE.sub(lambda found: environ.get(found[1].removesuffix("?"), found[0]), text)


def read_settings(text: str) -> dict[str, str]:
    """Parse lines of NAME=value, as in the files of `go env -w`."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, sign, value in pairs if sign}


def read_tree(text: str) -> dict[str, Any]:
    """Parse TOML or JSON (with comments on lines of their own); an empty tree if it is neither."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    try:
        found = json.loads(plain)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_sources_list(text: str) -> list[str]:
    """The addresses in a one-line-style list of apt."""
    return [found[1] for line in text.splitlines() if (found := _SUITE_LINE.match(line))]


def read_deb822(text: str) -> list[str]:
    """The addresses in a `.sources` file of apt, of the enabled stanzas."""
    found: list[str] = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[name] = f"{fields.get(name, '')} {line.strip()}"
                continue
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
        if fields.get("enabled", "yes").lower() not in ("no", "false", "0"):
            found += fields.get("uris", "").split()
    return found
