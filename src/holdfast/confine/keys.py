"""Keys that stay outside of a command: where they come from, and what the command gets instead.

The command's environment holds placeholders, and names a file with the certificates that it is to trust. The
keys themselves go to the process that serves the command's host names. For `holdfast exec` that process
inherits them when it is forked (`names.py`); a server sends them to it over a socket (`keysprocess.py`).
"""

import os

from holdfast.errors import UsageError
from holdfast.light import TYPE_CHECKING, Final, Mapping, Sequence, value
from holdfast.sandbox.policy.policy import Network
from holdfast.sandbox.policy.secretwish import SecretWish, parse_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.egress.hosts import Requests
    from holdfast.egress.keys.inspector import Inspector
    from holdfast.egress.keys.placeholders import Key
    from holdfast.sandbox.policy.policy import Policy

FOLDER: Final = "holdfast-trust-"  # prefix of the directories with certificates of runs
# The variables by which programs find their trusted certificates: the reference's list and two more
# runtimes.
CA_VARIABLES: Final = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "PIP_CERT", "BUNDLE_SSL_CA_CERT", "npm_config_cafile", "NPM_CONFIG_CAFILE"),
    *("CODEX_CA_CERTIFICATE", "DENO_CERT"),
)


@value
class KeptKeys:
    """The keys of one command, and the file of certificates that is made for it."""

    keys: "tuple[Key, ...]"
    folder: str
    trusted: tuple[str, ...]  # files that the user's own certificate variables name
    replaced: tuple[str, ...]  # those variables
    inspects: bool = False  # TLS to hosts without a key ends here too
    by_name: bool = True  # the hosts are reached by name, and not by a proxy that the command knows of

    @property
    def bundle(self) -> str:
        return f"{self.folder}/ca-bundle.pem"

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the command gets."""
        placeholders = {key.name: key.placeholder for key in self.keys}
        tls = self.inspects or any(key.targets - key.plain for key in self.keys)
        return dict.fromkeys(CA_VARIABLES if tls else (), self.bundle) | placeholders

    def find_in(self, text: str) -> str | None:
        """The name of the first variable whose key is in this text."""
        return next(iter(self.find_all(text)), None)

    def find_all(self, text: str) -> list[str]:
        """The variables whose keys are in this text, as they are or in another spelling."""
        from holdfast.egress.keys.masking import spell

        data = text.encode("utf-8", "backslashreplace")
        return [key.name for key in self.keys if any(word in data for word in spell(key))]

    def grant(self, policy: "Policy") -> "Policy":
        """The command's policy, with these keys' hosts and the certificate file's directory added.

        Raises:
            UsageError: the command reaches every host, so no broker would read its requests to these hosts.
        """
        if not self.by_name:
            return policy.allow_read(self.folder)
        if policy.network is Network.ON:
            raise UsageError("keys stay outside of a command that reaches hosts by name, and no others")
        for key in self.keys:
            for host, port in sorted(key.targets):
                plain = "http://" if (host, port) in key.plain else ""
                policy = policy.keep_secret(f"{key.name}@{plain}{host}:{port}")
        return policy.allow_read(self.folder)

    def make_folder(self) -> None:
        """Make the directory of the certificate file. Raises OSError."""
        os.mkdir(self.folder, 0o700)

    def make_inspector(
        self, requested: "Mapping[tuple[str, int], Sequence[Requests]] | None" = None
    ) -> "Inspector":
        """Make the inspector that puts the keys into requests, and the certificate file. Raises OSError."""
        from holdfast.egress.keys.authority import write_bundle
        from holdfast.egress.keys.inspector import Inspector

        made = Inspector(self.keys, self.trusted, requested)
        write_bundle(self.bundle, made.certificate, self.trusted)
        return made

    def forget(self) -> None:
        """Remove the certificate file and its directory."""
        import contextlib

        with contextlib.suppress(OSError):
            os.unlink(self.bundle)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def find_files(wishes: Sequence[str]) -> list[str]:
    """The files that these keys are taken from; the command must not read them. Raises UsageError."""
    from holdfast.egress.keys.sources import find_file

    return [path for path in map(find_file, map(parse_secret, wishes)) if path is not None]


def take_keys(wishes: Sequence[str], environ: Mapping[str, str], outside: Sequence[str] = ()) -> KeptKeys:
    """Take the keys from their sources; a program that lies below a directory of `outside` is not run.

    Raises:
        UsageError: a key cannot be obtained, or cannot be kept outside.
    """
    from holdfast.egress.keys.sources import read_key

    by_name: dict[str, list[SecretWish]] = {}
    for wish in map(parse_secret, wishes):
        by_name.setdefault(wish.name, []).append(wish)
    for name, several in by_name.items():
        if len({wish.source for wish in several}) > 1:
            raise UsageError(f"--secret {name}: its key is taken from two places")
    return keep_keys(
        ((several, read_key(several[0], environ, outside)) for several in by_name.values()), environ
    )


def keep_keys(given: "Iterable[tuple[Sequence[SecretWish], str]]", environ: Mapping[str, str]) -> KeptKeys:
    """The keys of these variables, each with all of its hosts; `environ` names other trusted certificates.

    Raises:
        UsageError: a key cannot be kept outside.
    """
    import importlib.util
    import secrets
    import tempfile

    if importlib.util.find_spec("cryptography") is None:
        raise UsageError(
            "to read requests inside of TLS needs `cryptography`",
            remedy="pip install 'holdfast-agents[keys]'",
        )
    keys = tuple(_keep(wishes, key) for wishes, key in given)
    both = {target for key in keys for target in key.plain}.intersection(
        target for key in keys for target in key.targets - key.plain
    )
    if both:
        host, port = min(both)
        raise UsageError(f"--secret: {host}:{port} cannot be reached with TLS and without")
    replaced = tuple(name for name in CA_VARIABLES if environ.get(name))
    folder = f"{os.path.realpath(tempfile.gettempdir())}/{FOLDER}{secrets.token_hex(16)}"
    return KeptKeys(keys, folder, tuple(environ[name] for name in replaced), replaced)


def _keep(wishes: Sequence[SecretWish], key: str) -> "Key":
    import secrets

    from holdfast.egress.keys.placeholders import BadKey, Key, make_placeholder

    name = wishes[0].name
    try:
        placeholder = make_placeholder(key, secrets.choice)
    except BadKey as exc:
        raise UsageError(f"--secret {name}: its key cannot be kept outside: {exc}") from None
    targets = frozenset((wish.host, wish.port) for wish in wishes)
    plain = frozenset((wish.host, wish.port) for wish in wishes if not wish.tls)
    return Key(name, key, placeholder, targets, plain)
