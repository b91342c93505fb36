"""Certificates of one run: a command that trusts them trusts these hosts, and no key is beside them."""

import contextlib
import datetime
import ssl
from pathlib import Path

import pytest

from holdfast.egress.keys.authority import Authority, join_certificates, write_bundle

NOW = datetime.datetime.now(datetime.UTC)


def shake(server: ssl.SSLContext, trusted: bytes, host: str, offered: list[str]) -> str | None:
    """Agree on TLS in memory; the protocol that was chosen."""
    client = ssl.create_default_context(cadata=trusted.decode())
    client.set_alpn_protocols(offered)
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(here, there, server_hostname=host)
    two = server.wrap_bio(there, here, server_side=True)
    for side in (one, two) * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return one.selected_alpn_protocol()


def test_a_leaf_stands_for_its_host_alone() -> None:
    made = Authority(["api.test", "b.test"], NOW)
    assert shake(made.make_context("api.test"), made.pem, "api.test", ["h2", "http/1.1"]) == "http/1.1"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(made.make_context("api.test"), made.pem, "b.test", ["http/1.1"])


def test_an_authority_cannot_speak_for_other_hosts() -> None:
    made = Authority(["api.test"], NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        shake(made.make_context("evil.example"), made.pem, "evil.example", ["http/1.1"])


def test_another_run_does_not_trust_it() -> None:
    one, two = Authority(["api.test"], NOW), Authority(["api.test"], NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(one.make_context("api.test"), two.pem, "api.test", ["http/1.1"])


def test_only_certificates_are_copied_and_each_once() -> None:
    pem = Authority(["api.test"], NOW).pem
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert join_certificates([b"# a comment\n" + key + pem, pem + key]) == pem


def test_a_bundle_has_what_the_user_trusts_and_cannot_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own, ours = (Authority(["api.test"], NOW).pem for _ in range(3))
    (tmp_path / "system").write_bytes(system)
    (tmp_path / "own").write_bytes(own)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system"))
    made = tmp_path / "bundle"
    write_bundle(str(made), ours, [str(tmp_path / "own"), str(tmp_path / "missing")])
    assert made.read_bytes() == system + own + ours
    assert made.stat().st_mode & 0o777 == 0o444
    with pytest.raises(FileExistsError):
        write_bundle(str(made), ours, [])
