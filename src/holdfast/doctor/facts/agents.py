"""Agent CLIs that the doctor knows: their versions, state and log-ins. Pure module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """One CLI. Paths are below the home directory unless a variable moves them."""

    name: str
    version_argv: tuple[str, ...]
    places: tuple[str, ...] = ()
    moved_by: str | None = None  # the variable that names the first place instead
    credentials: tuple[str, ...] = ()  # files that exist when somebody logged in
    keys: tuple[str, ...] = ()  # variables that do instead

    def places_in(self, home: str, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Where it keeps its state."""
        first = environ.get(self.moved_by) if self.moved_by else None
        usual = tuple(f"{home}/{place}" for place in self.places)
        return (first, *usual[1:]) if first else usual

    def logged_in(self, home: str, environ: Mapping[str, str], exists: Callable[[str], bool]) -> bool | None:
        """Whether there is a log-in, told by names alone; None if names cannot tell."""
        if not self.credentials:
            return None
        if any(environ.get(key) for key in self.keys):
            return True
        moved = environ.get(self.moved_by) if self.moved_by else None
        files = (
            f"{moved}/{path.removeprefix(f'{self.places[0]}/')}" if moved else f"{home}/{path}"
            for path in self.credentials
        )
        return any(exists(path) for path in files)


AGENTS: Final = (
    InstalledAgent(
        "codex", ("codex", "--version"), (".codex",), "CODEX_HOME", (".codex/auth.json",), ("OPENAI_API_KEY",)
    ),
    InstalledAgent(
        "claude",
        ("claude", "--version"),
        (".claude",),
        "CLAUDE_CONFIG_DIR",
        (".claude/.credentials.json",),
        ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
    ),
    InstalledAgent(
        "opencode",
        ("opencode", "--version"),
        (".local/share/opencode", ".config/opencode", ".local/state/opencode"),
        None,
        (".local/share/opencode/auth.json",),
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    ),
    InstalledAgent(
        "gemini",
        ("gemini", "--version"),
        (".gemini",),
        None,
        (".gemini/oauth_creds.json",),
        ("GEMINI_API_KEY",),
    ),
    InstalledAgent(
        "qwen", ("qwen", "--version"), (".qwen",), None, (".qwen/oauth_creds.json",), ("OPENAI_API_KEY",)
    ),
    InstalledAgent("aider", ("aider", "--version"), (".aider",)),
    InstalledAgent("hermes", ("hermes", "--version"), (".hermes",), "HERMES_HOME"),
)
