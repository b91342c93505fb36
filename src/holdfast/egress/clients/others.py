"""Where git and model clients configure their hosts. Pure module, but for what it is given."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.egress.clients import formats
from holdfast.egress.clients.packages import Origin, Surroundings

# Providers by their key variable: the variables that set another address, and the default address.
_PROVIDERS: Final = (
    ("OPENAI_API_KEY", ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/"),
    ("ANTHROPIC_API_KEY", ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com/"),
    ("ANTHROPIC_AUTH_TOKEN", ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com/"),
    ("GEMINI_API_KEY", ("GOOGLE_GEMINI_BASE_URL",), "https://generativelanguage.googleapis.com/"),
)
_BASE_KEYS: Final = ("base_url", "baseURL", "baseUrl")
_MAX_DEPTH: Final = 8  # nesting of a settings file


def find_git(seen: Surroundings) -> list[Origin]:
    """The hosts in settings of the user and the machine; a workspace's remotes are not trusted."""
    mine = seen.environ.get("GIT_CONFIG_GLOBAL")
    files = [mine] if mine else [f"{seen.below_home('XDG_CONFIG_HOME', '.config')}/git/config"]
    files += [] if mine else [f"{seen.home}/.gitconfig"]
    found = []
    for path in ("/etc/gitconfig", *files):
        for section, quoted, key, value in formats.read_sections(seen.read(path) or ""):
            if section in ("url", "credential", "http"):
                found.append(Origin(quoted, path))
            elif section == "remote" and key in ("url", "pushurl"):
                found.append(Origin(value, path))
    return found


def find_model(seen: Surroundings) -> list[Origin]:
    """The hosts of the models that this user's agents are configured for: by variables, and by settings."""
    found = []
    for key, elsewhere, usual in _PROVIDERS:
        if given := seen.variable(*elsewhere):
            found.append(given)
        elif seen.environ.get(key):
            found.append(Origin(usual, f"${key}"))
    config = seen.below_home("XDG_CONFIG_HOME", ".config")
    files = (
        f"{seen.below_home('CODEX_HOME', '.codex')}/config.toml",
        f"{seen.below_home('CLAUDE_CONFIG_DIR', '.claude')}/settings.json",
        f"{config}/opencode/opencode.json",
        f"{config}/opencode/opencode.jsonc",
        f"{seen.home}/.gemini/settings.json",
        f"{seen.home}/.qwen/settings.json",
    )
    for path in files:
        tree = formats.read_tree(seen.read(path) or "")
        found += [Origin(formats.expand(url, seen.environ), path) for url in _base_urls(tree)]
    return found


def _base_urls(tree: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Every base URL in a tree of settings, and in variables that it sets."""
    names = {name for _, elsewhere, _ in _PROVIDERS for name in elsewhere}
    for key, value in tree.items():
        if isinstance(value, str) and (key in _BASE_KEYS or key in names):
            yield value
        elif isinstance(value, dict) and depth < _MAX_DEPTH:
            yield from _base_urls(value, depth + 1)
