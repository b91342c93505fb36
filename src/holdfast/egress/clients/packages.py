"""Where package clients configure the hosts they fetch from. Pure module, but for what it is given to read.

Each recipe returns addresses and where they were found, with the client's own precedence: a variable or a
narrower file overrides a wider one. Settings of the workspace are ignored.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.egress.clients import formats

_PIP_INDEX: Final = re.compile(r'^PyPI = PackageIndex\(\s*"([^"]+)",\s*file_storage_domain="([^"]+)"', re.M)
_NPM_DEFAULT: Final = re.compile(
    r"\bregistry['\"]?, (?:new Definition\([^{]*)?\{[^}]*?default: ['\"]([^'\"]+)['\"]"
)
_PIP_KEYS: Final = ("index-url", "extra-index-url", "find-links")
_PIP_SECTIONS: Final = ("global", "install", "download", "wheel")
_CARGO_REGISTRY: Final = re.compile(r"CARGO_REGISTRIES_\w+_INDEX")


class Origin(NamedTuple):
    """An address, and where it was read."""

    url: str
    where: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a recipe may read: variables, files outside of the workspace, programs, and pip's defaults."""

    environ: Mapping[str, str]
    home: str
    read: Callable[[str], str | None]
    list: Callable[[str], Sequence[str]]
    find_program: Callable[[str], str | None]  # its path with links resolved
    find_pip: Callable[[], str | None]  # the source text that contains pip's default index

    def variable(self, *names: str) -> Origin | None:
        """The first of these variables that is set and not empty."""
        return next(
            (Origin(self.environ[name], f"${name}") for name in names if self.environ.get(name)), None
        )

    def below_home(self, variable: str, *parts: str) -> str:
        """A path below the directory that a variable names; by default below these parts of the home."""
        given = self.environ.get(variable, "")
        return given if given.startswith("/") else "/".join((self.home, *parts))


def find_pip(seen: Surroundings) -> list[Origin]:
    """The indexes, and the file host of pip's default index."""
    settings: dict[tuple[str, str], list[Origin]] = {}
    for path in _pip_files(seen):
        here: dict[tuple[str, str], list[Origin]] = {}
        for section, _, key, value in formats.read_sections(seen.read(path) or ""):
            name = key.replace("_", "-")
            if section in _PIP_SECTIONS and name in _PIP_KEYS:
                here.setdefault((section, name), []).extend(Origin(url, path) for url in value.split())
        settings |= here
    for name in _PIP_KEYS:
        variable = f"PIP_{name.upper().replace('-', '_')}"
        if given := seen.environ.get(variable):
            settings[":env:", name] = [Origin(url, f"${variable}") for url in given.split()]
            settings = {at: told for at, told in settings.items() if at[1] != name or at[0] == ":env:"}
    found = [origin for told in settings.values() for origin in told]
    if not any(name == "index-url" for section, name in settings if section in (":env:", "global")):
        found += _pip_default(seen)
    return found


def _pip_files(seen: Surroundings) -> Iterator[str]:
    """From the widest to the narrowest."""
    for folder in seen.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield f"{folder}/pip/pip.conf"
    yield "/etc/pip.conf"
    yield f"{seen.home}/.pip/pip.conf"
    yield f"{seen.below_home('XDG_CONFIG_HOME', '.config')}/pip/pip.conf"
    if environment := seen.environ.get("VIRTUAL_ENV"):
        yield f"{environment}/pip.conf"
    if named := seen.environ.get("PIP_CONFIG_FILE"):
        yield named


def _pip_default(seen: Surroundings) -> list[Origin]:
    text = seen.find_pip()
    own = _PIP_INDEX.search(text) if text else None
    return [] if own is None else [Origin(own[1], "pip itself"), Origin(f"https://{own[2]}/", "pip itself")]


def find_npm(seen: Surroundings) -> list[Origin]:
    """The registry, and the registries of scopes."""
    npm = seen.find_program("npm")
    top = npm.removesuffix("/bin/npm-cli.js") if npm and npm.endswith("/bin/npm-cli.js") else None
    found: dict[str, Origin] = {}
    if top and (own := _npm_default(seen, top)):
        found["registry"] = own
    prefix = top.removesuffix("/lib/node_modules/npm") if top else "/usr"
    files = [f"{top}/npmrc"] if top else []
    files += [
        seen.environ.get("NPM_CONFIG_GLOBALCONFIG") or f"{prefix}/etc/npmrc",
        seen.environ.get("NPM_CONFIG_USERCONFIG") or f"{seen.home}/.npmrc",
    ]
    for path in files:
        for name, value in formats.read_npmrc(seen.read(path) or "", seen.environ).items():
            if name == "registry" or (name.startswith("@") and name.endswith(":registry")):
                found[name] = Origin(value, path)
    for name, value in seen.environ.items():
        key = name.lower().removeprefix("npm_config_")
        if key != name.lower() and value and (key == "registry" or key.endswith(":registry")):
            found[key] = Origin(value, f"${name}")
    return list(found.values())


def _npm_default(seen: Surroundings, top: str) -> Origin | None:
    for package in (f"{top}/node_modules/@npmcli/config", "/usr/share/nodejs/@npmcli/config"):
        text = seen.read(f"{package}/lib/definitions/definitions.js") or ""
        if own := _NPM_DEFAULT.search(text):
            return Origin(own[1], "npm itself")
    return None


def find_cargo(seen: Surroundings) -> list[Origin]:
    """The configured registries, and those that cargo has an index of.

    Before its first use, no file of cargo names the default registry.
    """
    top = seen.below_home("CARGO_HOME", ".cargo")
    found = [
        Origin(value, f"${name}")
        for name, value in seen.environ.items()
        if _CARGO_REGISTRY.fullmatch(name) and value
    ]
    for path in (f"{top}/config.toml", f"{top}/config"):
        tree = formats.read_tree(seen.read(path) or "")
        found += [Origin(url, path) for url in _cargo_addresses(tree)]
    for name in seen.list(f"{top}/registry/index"):
        path = f"{top}/registry/index/{name}/config.json"
        tree = formats.read_tree(seen.read(path) or "")
        given = [url for key in ("dl", "api") if isinstance(url := tree.get(key), str)]
        if given:
            found.append(Origin(f"https://{name.rpartition('-')[0]}/", path))
            found += [Origin(url, path) for url in given]
    return found


def _cargo_addresses(tree: Mapping[str, Any]) -> Iterator[str]:
    for table, keys in (("registries", ("index",)), ("source", ("registry", "git"))):
        entries = tree.get(table)
        for entry in entries.values() if isinstance(entries, dict) else ():
            if isinstance(entry, dict):
                yield from (url for key in keys if isinstance(url := entry.get(key), str))


def find_go(seen: Surroundings) -> list[Origin]:
    """The module proxies and the checksum database; hosts of direct fetches are not configured anywhere."""
    go = seen.find_program("go")
    settings: dict[str, Origin] = {}
    files = [f"{go.removesuffix('/bin/go')}/go.env"] if go and go.endswith("/bin/go") else []
    named = seen.environ.get("GOENV")
    if named != "off":
        files.append(named or f"{seen.below_home('XDG_CONFIG_HOME', '.config')}/go/env")
    for path in files:
        told = formats.read_settings(seen.read(path) or "")
        settings |= {name: Origin(value, path) for name, value in told.items() if value}
    for name in ("GOPROXY", "GOSUMDB"):
        if given := seen.variable(name):
            settings[name] = given
    found: list[Origin] = []
    if proxies := settings.get("GOPROXY"):
        named_ones = re.split(r"[,|]", proxies.url)
        found += [Origin(url.strip(), proxies.where) for url in named_ones if "://" in url]
    if (sums := settings.get("GOSUMDB")) and sums.url != "off":
        name, *url = sums.url.split()
        found.append(Origin(url[0] if url else f"https://{name.partition('+')[0]}/", sums.where))
    return found


def find_apt(seen: Surroundings) -> list[Origin]:
    """The enabled sources."""
    found = [Origin(url, "/etc/apt/sources.list") for url in _read_apt(seen, "/etc/apt/sources.list")]
    for name in sorted(seen.list("/etc/apt/sources.list.d")):
        path = f"/etc/apt/sources.list.d/{name}"
        if name.endswith((".list", ".sources")):
            found += [Origin(url, path) for url in _read_apt(seen, path)]
    return found


def _read_apt(seen: Surroundings, path: str) -> list[str]:
    text = seen.read(path) or ""
    return formats.read_deb822(text) if path.endswith(".sources") else formats.read_sources_list(text)
