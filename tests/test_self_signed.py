"""The certificate of `--tls-self-signed` is one that strict clients accept from the authority beside it."""

from __future__ import annotations

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
    """Return the server certificate and its authority, as the server shows them."""
    cert_file, _ = self_signed(directory)
    server, authority = x509.load_pem_x509_certificates(cert_file.read_bytes())
    return server, authority


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, address: str) -> None:
    """Complete a handshake in memory; raises what the client has against the certificate."""
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
def test_strict_openssl_trusts_the_server_through_the_authority(tmp_path: Path, address: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*self_signed(tmp_path))
    client = ssl.create_default_context(cafile=str(tmp_path / CA_NAME))
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    shake_hands(client, server, address)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_verifier_of_the_web_profile_accepts_the_server_certificate(tmp_path: Path, address: str) -> None:
    server, authority = chain(tmp_path)
    subject = x509.DNSName(address) if address == "localhost" else x509.IPAddress(ip_address(address))
    verifier = verification.PolicyBuilder().store(verification.Store([authority]))

    found = verifier.build_server_verifier(subject).verify(server, [])

    assert found == [server, authority]


def test_the_server_certificate_is_no_authority_and_signs_handshakes_only(tmp_path: Path) -> None:
    server, authority = chain(tmp_path)

    usage = server.extensions.get_extension_for_class(x509.KeyUsage).value
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_the_key_is_private_and_the_key_of_the_authority_is_not_kept(tmp_path: Path) -> None:
    _, key_file = self_signed(tmp_path / "tls")

    assert key_file.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in key_file.parent.iterdir()) == [CA_NAME, "cert.pem", "key.pem"]
    assert (tmp_path / "tls" / CA_NAME).read_text().count("BEGIN") == 1


def test_the_certificate_is_made_once_and_kept(tmp_path: Path) -> None:
    asked = Settings(tls=Tls(self_signed=True))

    made = with_certificate(asked, tmp_path)
    first = Path(made.tls.cert_file).read_bytes()

    assert with_certificate(asked, tmp_path) == made
    assert Path(made.tls.cert_file).read_bytes() == first
    assert with_certificate(Settings(), tmp_path) == Settings()


def test_a_certificate_that_is_about_to_expire_is_not_usable(tmp_path: Path) -> None:
    self_signed(tmp_path)
    now = datetime.now(UTC)

    assert is_usable(tmp_path, now=now)
    assert not is_usable(tmp_path, now=now + timedelta(days=364, hours=12))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(CA_NAME, id="the authority of another installation"),
        pytest.param("cert.pem", id="the certificate of another installation"),
        pytest.param("key.pem", id="the key of another installation"),
    ],
)
def test_files_that_do_not_fit_together_are_made_again(tmp_path: Path, name: str) -> None:
    self_signed(tmp_path / "one")
    self_signed(tmp_path / "other")
    (tmp_path / "other" / name).replace(tmp_path / "one" / name)
    assert not is_usable(tmp_path / "one", now=datetime.now(UTC))

    self_signed(tmp_path / "one")

    assert is_usable(tmp_path / "one", now=datetime.now(UTC))
