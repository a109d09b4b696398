"""Tests of the certificate of `--tls-self-signed`: strict clients accept it through its CA."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification

from receiver.settings import Settings, Tls
from receiver.supervisor.certificate import CA_NAME, with_certificate
from receiver.supervisor.self_signed import is_usable, self_signed

ADDRESSES = [
    pytest.param("localhost", id="localhost"),
    pytest.param("127.0.0.1", id="IPv4"),
    pytest.param("::1", id="IPv6"),
]


def chain(directory: Path) -> tuple[x509.Certificate, x509.Certificate]:
    """Return the server certificate and its CA certificate, as the server sends them."""
    cert_file, _ = self_signed(directory)
    server, ca = x509.load_pem_x509_certificates(cert_file.read_bytes())
    return server, ca


def complete_handshake(client: ssl.SSLContext, server: ssl.SSLContext, address: str) -> None:
    """Complete a handshake in memory; raises if the client refuses the certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=address),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in ends * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert ends[0].version()


@pytest.mark.parametrize("address", ADDRESSES)
def test_strict_openssl_client_trusts_the_server_through_the_ca(tmp_path: Path, address: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*self_signed(tmp_path))
    client = ssl.create_default_context(cafile=str(tmp_path / CA_NAME))
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    complete_handshake(client, server, address)


@pytest.mark.parametrize("address", ADDRESSES)
def test_web_pki_verifier_accepts_the_server_certificate(tmp_path: Path, address: str) -> None:
    server, ca = chain(tmp_path)
    subject = x509.DNSName(address) if address == "localhost" else x509.IPAddress(ip_address(address))
    verifier = verification.PolicyBuilder().store(verification.Store([ca]))

    verified = verifier.build_server_verifier(subject).verify(server, [])

    assert verified == [server, ca]


def test_server_certificate_is_not_a_ca(tmp_path: Path) -> None:
    server, ca = chain(tmp_path)

    usage = server.extensions.get_extension_for_class(x509.KeyUsage).value
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ca.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_server_key_is_private_and_the_ca_key_is_not_stored(tmp_path: Path) -> None:
    _, key_file = self_signed(tmp_path / "tls")

    assert key_file.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in key_file.parent.iterdir()) == [CA_NAME, "cert.pem", "key.pem"]
    assert (tmp_path / "tls" / CA_NAME).read_text().count("BEGIN") == 1


def test_other_users_can_read_only_the_certificate_authority(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        _, key_file = self_signed(tmp_path / "tls")
    finally:
        os.umask(umask)

    modes = {file.name: file.stat().st_mode & 0o777 for file in (key_file.parent, *key_file.parent.iterdir())}
    assert modes == {"tls": 0o755, CA_NAME: 0o644, "cert.pem": 0o600, "key.pem": 0o600}


def test_certificate_is_created_once_and_reused(tmp_path: Path) -> None:
    settings = Settings(tls=Tls(self_signed=True))

    with_files = with_certificate(settings, tmp_path)
    first = Path(with_files.tls.cert_file).read_bytes()

    assert with_certificate(settings, tmp_path) == with_files
    assert Path(with_files.tls.cert_file).read_bytes() == first
    assert with_certificate(Settings(), tmp_path) == Settings()


def test_certificate_that_expires_soon_is_not_usable(tmp_path: Path) -> None:
    self_signed(tmp_path)
    now = datetime.now(UTC)

    assert is_usable(tmp_path, now=now)
    assert not is_usable(tmp_path, now=now + timedelta(days=364, hours=12))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(CA_NAME, id="CA of another installation"),
        pytest.param("cert.pem", id="certificate of another installation"),
        pytest.param("key.pem", id="key of another installation"),
    ],
)
def test_mismatched_files_are_replaced(tmp_path: Path, name: str) -> None:
    self_signed(tmp_path / "first")
    self_signed(tmp_path / "other")
    (tmp_path / "other" / name).replace(tmp_path / "first" / name)
    assert not is_usable(tmp_path / "first", now=datetime.now(UTC))

    self_signed(tmp_path / "first")

    assert is_usable(tmp_path / "first", now=datetime.now(UTC))
