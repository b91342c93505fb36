"""Certificates of one run: an authority whose key is in our memory only, and a leaf for each of its hosts.

Only the command of this run trusts it, and it can sign for those hosts only (name constraints).
"""

import contextlib
import datetime
import os
import re
import ssl
from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: Final = datetime.timedelta(days=90)  # longer than any command runs
EARLY: Final = datetime.timedelta(days=1)  # for clocks that are behind
ALPN: Final = ["http/1.1"]
MAX_BUNDLE: Final = 16 * 1024 * 1024  # of one file with certificates
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
# Where systems keep their trusted certificates in one file; the first that exists is used.
BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class Authority:
    """An authority for these hosts only."""

    def __init__(self, hosts: Iterable[str], now: datetime.datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"holdfast, one run only, {os.urandom(4).hex()}")]
        )
        names = [x509.DNSName(host) for host in hosts]
        usage = _usage(key_cert_sign=True)
        self._certificate = (
            self._begin(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.NameConstraints(names, None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def make_context(self, host: str) -> ssl.SSLContext:
        """TLS as this host, for a command that trusts us."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        leaf = (
            self._begin(name, self._certificate.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(key_cert_sign=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(ALPN)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        _load(context, private + leaf.public_bytes(serialization.Encoding.PEM))
        return context

    def _begin(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        ours = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - EARLY)
            .not_valid_after(self._now + VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
        )


def _usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not key_cert_sign,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(context: ssl.SSLContext, chain: bytes) -> None:
    """Load a key from a memory file, because Python reads keys from files only."""
    fd = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        os.write(fd, chain)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def trust_host(named: Iterable[str] = ()) -> ssl.SSLContext:
    """TLS towards hosts, verified with this machine's trusted certificates (and those in SSL_CERT_FILE).

    `named` are further files, which the command would trust without us.
    """
    context = ssl.create_default_context()
    for file in named:
        with contextlib.suppress(OSError):  # ssl.SSLError too: the file has no certificate
            context.load_verify_locations(file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(ALPN)
    return context


def write_bundle(path: str, ours: bytes, named: Iterable[str]) -> None:
    """Create the file of certificates that a command trusts: this machine's, those of these files, and ours.

    Raises:
        OSError: it cannot be created.
    """
    usual = (os.environ.get(ssl.get_default_verify_paths().openssl_cafile_env), *BUNDLES)
    system = next((file for file in usual if file and os.path.isfile(file)), None)
    texts = [_read(file) for file in dict.fromkeys((*([system] if system else ()), *named))]
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o444)
    with os.fdopen(fd, "wb") as file:
        file.write(join_certificates([*texts, ours]))
        os.fchmod(file.fileno(), 0o444)


def join_certificates(texts: Iterable[bytes]) -> bytes:
    """The certificates in these files, each once, without other content such as a private key."""
    found = dict.fromkeys(block for text in texts for block in _CERTIFICATE.findall(text))
    return b"".join(block + b"\n" for block in found)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BUNDLE)
    except OSError:
        return b""
