"""Credentials: the places where users and their tools keep them, and variables that hold one. Pure module."""

from holdfast.light import Final, Iterable, Mapping

# Below a home. A worker may read none of them; a command of `exec` only if that is allowed.
CREDENTIALS: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".netrc", ".npmrc"),
    *(".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".terraform.d", ".boto", ".s3cfg"),
    *(".oci", ".config/gcloud", ".config/gh", ".config/hub", ".config/git/credentials", ".config/op"),
    *(".config/rclone", ".config/doctl", ".config/sops", ".config/google-chrome", ".config/chromium"),
    *(".mozilla", ".thunderbird", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
    *(".m2/settings.xml", ".gradle", ".codex/auth.json", ".claude/.credentials.json", ".claude.json"),
    *(".gemini/oauth_creds.json", ".qwen", ".local/share/opencode/auth.json", ".local/share/keyrings"),
    *(
        ".hermes",
        ".pi/agent/auth.json",
        ".pi/agent/models.json",
        ".copilot/config.json",
        ".local/share/kilo/auth.json",
    ),
    *(".config/goose/secrets.yaml", ".cline/data/settings/providers.json", ".continue/.env"),
    *(".continue/config.yaml", ".continue/auth.json", ".local/share/amp/secrets.json"),
    *(
        ".local/share/crush/crush.json",
        ".config/crush/crush.json",
        ".aider.conf.yml",
        ".aider/oauth-keys.env",
    ),
    *(".bash_history", ".zsh_history"),
)
# A name that has one of these words, or ends with one: OPENAI_API_KEY, GITHUB_TOKEN, PGPASSWORD.
_WORDS: Final = frozenset(
    {
        "KEY",
        "SECRET",
        "SECRETS",
        "TOKEN",
        "PAT",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
    }
)
_ENDINGS: Final = ("APIKEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD")


def credentials(home: str, *, granted: Iterable[str]) -> list[str]:
    """Paths below a home that are denied, except those inside something granted."""
    places = [place.rstrip("/") for place in granted]
    found = [f"{home.rstrip('/')}/{name}" for name in CREDENTIALS]
    return [path for path in found if not any(f"{path}/".startswith(f"{place}/") for place in places)]


def is_credential(path: str) -> bool:
    """Whether this is one of these places, in any user's home. No advice ever grants one."""
    return any(f"/{name}/" in f"{path}/" for name in CREDENTIALS)


def find_secrets(environ: Mapping[str, str]) -> list[str]:
    """The names of variables that hold a secret, judged by words in the name, or by a password in a URL."""
    return sorted(
        name for name, value in environ.items() if _names_secret(name.upper()) or _has_password(value)
    )


def _names_secret(name: str) -> bool:
    return name.endswith(_ENDINGS) or not _WORDS.isdisjoint(name.split("_"))


def _has_password(value: str) -> bool:
    """Whether it is like postgres://user:password@host."""
    _, scheme, rest = value.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    return bool(scheme and at) and bool(user.partition(":")[2])
