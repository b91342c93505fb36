"""Keys that stay outside of a command: where they are taken from, and what the command gets instead.

The command's environment holds placeholders, and names a file with the certificates that it is to trust. The
keys themselves go to the process that serves its names (`names.py`), by its fork.
"""

import os

from holdfast.annotations import TYPE_CHECKING, Final, Mapping, Sequence
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import COMMAND, FILE, SecretWish, parse_secret
from holdfast.sandbox.values import value

if TYPE_CHECKING:
    from holdfast.egress.hosts import Requests
    from holdfast.egress.keys.inspector import Inspector
    from holdfast.egress.keys.placeholders import Key

COMMAND_S: Final = 120.0  # a person may have to type a passphrase
MAX_BYTES: Final = 64 * 1024
# By which programs find what they trust, as the reference has them.
CA_VARIABLES: Final = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "PIP_CERT", "BUNDLE_SSL_CA_CERT", "npm_config_cafile", "NPM_CONFIG_CAFILE"),
)


@value
class KeptKeys:
    """The keys of one command, and the file of certificates that is made for it."""

    keys: "tuple[Key, ...]"
    folder: str
    trusted: tuple[str, ...]  # files that the user's own variables name
    replaced: tuple[str, ...]  # those variables

    @property
    def bundle(self) -> str:
        return f"{self.folder}/ca-bundle.pem"

    @property
    def variables(self) -> dict[str, str]:
        """What the command gets."""
        placeholders = {key.name: key.placeholder for key in self.keys}
        return dict.fromkeys(CA_VARIABLES, self.bundle) | placeholders

    def find_in(self, text: str) -> str | None:
        """The variable whose key is in this text."""
        return next((key.name for key in self.keys if key.value in text), None)

    def make_folder(self) -> None:
        """For the file. Raises OSError."""
        os.mkdir(self.folder, 0o700)

    def make_inspector(
        self, requested: "Mapping[tuple[str, int], Sequence[Requests]] | None" = None
    ) -> "Inspector":
        """Who puts the keys into requests; the file is made. Raises OSError."""
        from holdfast.egress.keys.authority import write_bundle
        from holdfast.egress.keys.inspector import Inspector

        made = Inspector(self.keys, requested)
        write_bundle(self.bundle, made.certificate, self.trusted)
        return made

    def forget(self) -> None:
        """Remove the file."""
        import contextlib

        with contextlib.suppress(OSError):
            os.unlink(self.bundle)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def find_files(wishes: Sequence[str]) -> list[str]:
    """The files that these keys are taken from, which the command is not to read. Raises UsageError."""
    sources = [parse_secret(text).source for text in wishes]
    return [os.path.abspath(_expand(source)) for source in sources if source.startswith(FILE)]


def take_keys(wishes: Sequence[str], environ: Mapping[str, str]) -> KeptKeys:
    """Take them from where they are.

    Raises:
        UsageError: one cannot be had, or not be kept outside.
    """
    import importlib.util
    import secrets
    import tempfile

    if importlib.util.find_spec("cryptography") is None:
        what = "--secret" if wishes else "a rule about requests by https"
        raise UsageError(f"{what} needs `cryptography`", remedy="pip install 'holdfast-agents[keys]'")
    by_name: dict[str, list[SecretWish]] = {}
    for wish in map(parse_secret, wishes):
        by_name.setdefault(wish.name, []).append(wish)
    keys = tuple(_take(name, several, environ) for name, several in by_name.items())
    replaced = tuple(name for name in CA_VARIABLES if environ.get(name))
    folder = f"{os.path.realpath(tempfile.gettempdir())}/holdfast-trust-{secrets.token_hex(16)}"
    return KeptKeys(keys, folder, tuple(environ[name] for name in replaced), replaced)


def _take(name: str, wishes: Sequence[SecretWish], environ: Mapping[str, str]) -> "Key":
    import secrets

    from holdfast.egress.keys.placeholders import BadKey, Key, make_placeholder

    if len({wish.source for wish in wishes}) > 1:
        raise UsageError(f"--secret {name}: its key is taken from two places")
    key = _read(wishes[0], environ)
    try:
        placeholder = make_placeholder(key, secrets.choice)
    except BadKey as exc:
        raise UsageError(f"--secret {name}: its key cannot be kept outside: {exc}") from None
    return Key(name, key, placeholder, frozenset((wish.host, wish.port) for wish in wishes))


def _read(wish: SecretWish, environ: Mapping[str, str]) -> str:
    """Raises UsageError, in which nothing of the key is."""
    if wish.source.startswith(FILE):
        try:
            with open(_expand(wish.source), "rb") as file:
                return _text(file.read(MAX_BYTES).rstrip(b"\r\n"))
        except OSError as exc:
            raise UsageError(f"--secret {wish.name}: cannot read its file: {exc.strerror}") from None
    if wish.source.startswith(COMMAND):
        return _ask(wish)
    if not environ.get(wish.name):
        raise UsageError(
            f"--secret {wish.name}: there is no such variable",
            remedy=f"set {wish.name}, or name a file or a program: {wish.name}=file:PATH@{wish.host}",
        )
    return environ[wish.name]


def _ask(wish: SecretWish) -> str:
    """The first line that a program says, as `pass` does. It runs outside, without a shell."""
    import shlex
    import subprocess

    try:
        words = shlex.split(wish.source.removeprefix(COMMAND))
        done = subprocess.run(  # noqa: S603 - the user's own program, by the user's own words
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=COMMAND_S, check=False
        )
    except ValueError:
        raise UsageError(f"--secret {wish.name}: its program has an open quotation") from None
    except OSError as exc:
        raise UsageError(f"--secret {wish.name}: {words[0]} cannot be run: {exc.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"--secret {wish.name}: {words[0]} did not end") from None
    if done.returncode:
        raise UsageError(f"--secret {wish.name}: {words[0]} failed with {done.returncode}")
    return _text(done.stdout[:MAX_BYTES].partition(b"\n")[0].rstrip(b"\r"))


def _expand(source: str) -> str:
    return os.path.expanduser(source.removeprefix(FILE))


def _text(data: bytes) -> str:
    return data.decode("latin-1")  # what is not ASCII is refused with its reason
