"""`holdfast relay` as it is typed."""

import datetime
import ipaddress
import json
import ssl
import subprocess
import sys
from pathlib import Path

import httpx2
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.commands import relay as relay_command
from tests.support.patience import patient
from tests.support.rawrelay import key
from tests.support.relays import relay_process
from tests.support.rows import every_row

LIMIT_S = patient(30.0)


def call(tmp_path: Path, *words: str, code: int = 0, typed: str = "") -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "relay", *words],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOLDFAST_HOME": str(tmp_path / "home")},
        input=typed, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == code, done
    return done


def test_a_token_is_shown_once_and_listed_without(tmp_path: Path) -> None:
    token = call(tmp_path, "token", "add", "box", "--role", "executor", "--environment", "b*").stdout.strip()
    assert token.startswith("hfr_")
    assert len(token) > 40
    [row] = json.loads(call(tmp_path, "token", "list", "--json").stdout)["tokens"]
    assert (row["name"], row["roles"], row["environments"], row["state"]) == (
        "box",
        ["executor"],
        ["b*"],
        "valid",
    )
    assert token not in call(tmp_path, "token", "list").stdout
    call(tmp_path, "token", "add", "box", code=4)
    call(tmp_path, "token", "revoke", "box")
    assert json.loads(call(tmp_path, "token", "list", "--json").stdout)["tokens"][0]["state"] == "revoked"
    call(tmp_path, "token", "revoke", "nobody", code=3)
    given = tmp_path / "given"
    given.write_text("a-token-of-somebody-else\n", "utf-8")
    assert call(tmp_path, "token", "add", "x", "--tenant", "t2", "--token-file", str(given)).stdout == ""
    call(tmp_path, "token", "add", "z", "--token-file", "-", typed="a-token-that-somebody-types\n")
    assert "z" in [
        row["name"] for row in json.loads(call(tmp_path, "token", "list", "--json").stdout)["tokens"]
    ]
    call(tmp_path, "token", "add", "y", "--environment", "a/b", code=2)


@every_row(
    ("words", "said"),
    [
        (["--listen", "http://0.0.0.0:0"], "without TLS"),
        (["--listen", "https://127.0.0.1:0"], "http://IP:PORT"),
        (["--listen", "unix:///x"], "http://IP:PORT"),
        (["--listen", "http://127.0.0.1:0", "--tls-cert", "/dev/null"], "certificate"),
        (["--listen", "http://127.0.0.1:0", "--tls-key", "/dev/null"], "--tls-cert"),
        (["--listen", "http://127.0.0.1:0", "--public-url", "ftp://x"], "not an address"),
        (["--listen", "http://127.0.0.1:0", "--audit-log", "/nowhere/x"], "/nowhere/x"),
        (["--nats", "http://127.0.0.1:4222"], "nats://HOST:PORT"),
        (["--nats", "nats://127.0.0.1,tls://127.0.0.1"], "all of one kind"),
        (["--nats", "nats://me:secret@nats.example"], "without TLS"),
        (["--nats", "nats://nats.example", "--nats-credentials", "/dev/null"], "without TLS"),
        (["--nats", "nats://127.0.0.1", "--nats-ca", "/dev/null"], "tls://"),
        (["--nats", "tls://127.0.0.1", "--nats-ca", "/dev/null"], "--nats-ca"),
        (["--nats", "tls://127.0.0.1", "--nats-credentials", "/nowhere/x"], "/nowhere/x"),
        (["--nats-credentials", "/dev/null"], "need --nats"),
    ],
)
def test_a_relay_that_could_not_be_trusted_does_not_begin(words: list[str], said: str) -> None:
    done = CliRunner().invoke(relay_command.serve, words)
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert "secret" not in done.stderr
    assert isinstance(done.exception, SystemExit)


def make_certificate(folder: Path) -> Path:
    """For 127.0.0.1, signed by itself, with its key in the same file."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(private, hashes.SHA256())
    )
    file = folder / "relay.pem"
    plain = serialization.NoEncryption()
    secret = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + secret)
    return file


def ask(
    url: str,
    body: object = None,
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    certificate: Path | None = None,
) -> httpx2.Response:
    trusted = ssl.create_default_context(cafile=None if certificate is None else str(certificate))
    method = "GET" if body is None else "POST"
    return httpx2.request(method, url, json=body, headers=headers, verify=trusted, trust_env=False)


async def test_a_relay_with_a_certificate_hands_out_addresses_with_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    async with relay_process(tmp_path / "relay", "--tls-cert", str(certificate)) as relay:
        assert relay.url.startswith("https://")
        shown = {"authorization": f"Bearer {relay.call('token', 'add', 'box')}"}
        reply = ask(
            f"{relay.url}/cloud/environment/box/register",
            {"security_profile": "noise_hybrid_ik_v1", "executor_public_key": key("e")},
            shown,
            certificate,
        )
        assert reply.json()["url"].startswith(relay.url.replace("https", "wss"))
        assert ask(f"{relay.url}/healthz", certificate=certificate).status_code == 200


async def test_metrics_are_for_this_machine_and_whom_the_proxy_names_is_somebody_else(tmp_path: Path) -> None:
    async with relay_process(tmp_path / "relay", "--metrics", "--behind-proxy") as relay:
        assert "holdfast_relay_executors 0.0" in ask(f"{relay.url}/metrics").text
        named = {"x-forwarded-for": "127.0.0.1, 192.0.2.7"}
        assert ask(f"{relay.url}/metrics", headers=named).status_code == 403
        added = [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-for", "192.0.2.8")]  # as HAProxy does
        assert ask(f"{relay.url}/metrics", headers=added).status_code == 403
        connect = f"{relay.url}/cloud/environment/box/connect"
        assert ask(connect, {}, {"authorization": "Bearer wrong", **named}).status_code == 401
        assert '"192.0.2.7"' in relay.audit.read_text("utf-8")
        assert ask(f"{relay.url}/ws/environment/box").status_code == 400
        page = ask(f"{relay.url}/metrics").text
        assert 'holdfast_relay_registry_seconds_count{operation="connect",status="401"} 1.0' in page
