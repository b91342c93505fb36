"""An authority that nobody else trusts, and a certificate of it."""

import datetime
import ipaddress
import ssl
from asyncio import sslproto
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY: Final = datetime.timedelta(days=1)


@pytest.fixture
def tls_of_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes a connection again can never abort it, as in Python 3.11.2."""
    transport: Any = vars(sslproto)["_SSLProtocolTransport"]
    close, abort = transport.close, transport.abort

    def close_or_forget(self: Any) -> None:
        if self._closed:
            self._ssl_protocol = None
        else:
            close(self)

    def abort_unless_forgotten(self: Any) -> None:
        assert self._ssl_protocol is not None
        abort(self)

    monkeypatch.setattr(transport, "close", close_or_forget)
    monkeypatch.setattr(transport, "abort", abort_unless_forgotten)


class Certified(NamedTuple):
    """Files in PEM."""

    authority: Path
    certificate: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        """For a server with this certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    @property
    def trusting(self) -> dict[str, str]:
        """What has a program trust the authority: most, and the Codex CLI."""
        return {"SSL_CERT_FILE": str(self.authority), "CODEX_CA_CERTIFICATE": str(self.authority)}


def certify(folder: Path, names: Sequence[str]) -> Certified:
    """A certificate for 127.0.0.1 and these names."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    alternatives = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *(x509.DNSName(name) for name in names)]
    )
    root = _begin("Authority of the tests", authority, "Authority of the tests")
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    leaf = _begin("relay", server, "Authority of the tests").add_extension(alternatives, critical=False)
    leaf = leaf.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
    )
    root = root.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False
    )
    made = Certified(folder / "authority.pem", folder / "relay.pem", folder / "relay.key")
    for file, builder in ((made.authority, root), (made.certificate, leaf)):
        signed = builder.sign(authority, hashes.SHA256())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return made


def _begin(subject: str, key: ec.EllipticCurvePrivateKey, issuer: str) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer_name=_name(issuer),
        subject_name=_name(subject),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - DAY,
        not_valid_after=now + DAY,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
