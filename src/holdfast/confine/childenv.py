"""The environment of a child process. Pure module.

Without a policy a child gets what the request names and nothing else. With a policy, the child also gets the
server's environment as narrowed by that policy. Variables that carry the server's own credentials are never
passed on.
"""

from holdfast.light import TYPE_CHECKING, Final, Iterable, Mapping
from holdfast.local import credentials

if TYPE_CHECKING:
    from holdfast.wire.processes import EnvPolicy

CORE: Final = frozenset(  # compared in upper case
    {"PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"}
)
DEFAULT_EXCLUDES: Final = ("*KEY*", "*SECRET*", "*TOKEN*")

_SCRUBBED_EXACTLY: Final = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"


def final_env(
    env: Mapping[str, str], policy: "EnvPolicy | None", server_env: Mapping[str, str]
) -> dict[str, str]:
    """The child's environment: the server's under `policy`, then `env`, minus scrubbed names."""
    asked = dict(env) if policy is None else {**narrow(inherit(server_env, policy), policy), **env}
    return scrub(as_read(asked))


def as_read(env: Mapping[str, str]) -> dict[str, str]:
    """`env` as a child reads it: a name ends at its first `=`. Entries without a name are left out.

    So a check by name sees exactly what the child will see under that name.
    """
    if not any(not name or "=" in name for name in env):
        return dict(env)
    pairs = (f"{name}={value}".partition("=") for name, value in sorted(env.items()))
    return {name: value for name, _, value in pairs if name}


def inherit(server_env: Mapping[str, str], policy: "EnvPolicy") -> dict[str, str]:
    """The variables that the policy lets a child start from, before any filter."""
    if policy.inherit == "all":
        return dict(server_env)
    if policy.inherit == "core":
        return {name: value for name, value in server_env.items() if name.upper() in CORE}
    return {}


def narrow(env: Mapping[str, str], policy: "EnvPolicy") -> dict[str, str]:
    """`env` after the policy's filters and settings, in the order the protocol gives them."""
    excludes = policy.exclude if policy.ignore_default_excludes else [*DEFAULT_EXCLUDES, *policy.exclude]
    kept = {name: value for name, value in env.items() if not _matches_any(excludes, name)}
    kept.update(policy.set)
    if not policy.include_only:
        return kept
    return {name: value for name, value in kept.items() if _matches_any(policy.include_only, name)}


def scrub(env: Mapping[str, str]) -> dict[str, str]:
    """`env` without the variables that no child may ever see."""
    return {
        name: value
        for name, value in env.items()
        if name.upper() not in credentials.VARIABLES and name != _SCRUBBED_EXACTLY
    }


def _matches_any(patterns: Iterable[str], name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` covers the whole of `name`: `*` matches any run, `?` one character; case is ignored.

    Takes at most len(pattern) * len(name) steps: the pattern comes from the peer, and a regular expression
    made from many stars would backtrack far beyond that.
    """
    pattern, name = pattern.lower(), name.lower()
    literal = pattern.strip("*")
    if pattern == f"*{literal}*" and "*" not in literal and "?" not in literal:
        return literal in name  # the default excludes have this form, for every variable of every start
    at_pattern = at_name = resume_name = 0
    star = -1
    while at_name < len(name):
        wanted = pattern[at_pattern] if at_pattern < len(pattern) else ""
        if wanted == "*":
            star, resume_name = at_pattern, at_name
            at_pattern += 1
        elif wanted and wanted in ("?", name[at_name]):
            at_pattern += 1
            at_name += 1
        elif star >= 0:
            resume_name += 1
            at_pattern, at_name = star + 1, resume_name
        else:
            return False
    return not pattern[at_pattern:].strip("*")
