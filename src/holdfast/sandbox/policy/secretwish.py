"""Keys that stay outside, as they were asked for: variable, source, and host. Pure module."""

from holdfast.errors import UsageError
from holdfast.light import Final, value
from holdfast.sandbox.policy.hostwish import is_plain

KEYS: Final = "keys:"  # prefix of descriptions of keys
HTTP_PORT, HTTPS_PORT = 80, 443
FILE, COMMAND, PASS, SECRET_TOOL = "file:", "cmd:", "pass:", "secret-tool:"  # sources besides the environment
SOURCES: Final = (FILE, COMMAND, PASS, SECRET_TOOL)
_PLAIN: Final = "http://"  # before a host that speaks no TLS
_LOOPBACK: Final = "127.0.0.1"  # a rule may name it with a port
_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_REMEDY: Final = (
    "write NAME@HOST, NAME=file:PATH@HOST, NAME=pass:ENTRY@HOST, NAME=secret-tool:ATTRIBUTE VALUE@HOST or "
    "NAME=cmd:PROGRAM ARGUMENTS@HOST"
)


@value
class SecretWish:
    """The variable, the source of its key (empty: that variable outside), and its host.

    A host that is not reached by `tls` gets the key as the program would have sent it: in the clear.
    """

    name: str
    source: str
    host: str
    port: int
    tls: bool = True

    @property
    def rule(self) -> str:
        """The rule that allows the host to which the key may go."""
        return f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The host in the spelling of `--secret`."""
        return self.rule if self.tls else f"{_PLAIN}{self.rule}"


def parse_secret(text: str) -> SecretWish:
    """Parse the value of `--secret`.

    Raises:
        UsageError: it is invalid.
    """
    taken, at, target = text.rpartition("@")
    name, has_source, source = taken.partition("=")
    tls, target = not target.startswith(_PLAIN), target.removeprefix(_PLAIN)
    host, colon, port = target.partition(":")
    if not at or not _is_variable(name):
        raise _wrong(text, "it names no variable and host")
    named = f"localhost{colon}{port}" if colon and host == _LOOPBACK and not tls else target
    if not is_plain(named) or "*" in target:
        raise _wrong(text, f"{target} is not one host")
    if has_source and not any(source.startswith(kind) and source != kind for kind in SOURCES):
        raise _wrong(text, "its key is taken from nowhere")
    usual = HTTPS_PORT if tls else HTTP_PORT
    return SecretWish(name, source, host.lower(), int(port) if colon else usual, tls)


def describe_secret(text: str) -> str:
    """What is done with a key, in words for users."""
    secret = parse_secret(text)
    how = "whose TLS ends at the broker outside" if secret.tls else "by the broker outside, without TLS"
    where = f"headers of requests to {secret.rule}, {how}"
    return f"{KEYS} the command has a placeholder for ${secret.name}; it is replaced in {where}"


def _is_variable(name: str) -> bool:
    letters = _LETTERS.union("0123456789")
    return bool(name) and name[0] in _LETTERS and letters.issuperset(name)


def _wrong(text: str, why: str) -> UsageError:
    """Hide what may be a key: a user who wrote the key itself there must not find it in a log."""
    shown = text if len(text) <= 200 and "=" not in text else text.partition("=")[0] + "=…"
    return UsageError(f"--secret {shown}: {why}", remedy=_REMEDY)
