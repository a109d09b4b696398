"""Certificates for `--tls-self-signed`: a server certificate, and the local authority that signs it.

    ca.crt     the authority, readable by all users; clients trust this file
    cert.pem   the server certificate, then the authority
    key.pem    the key of the server certificate, readable by the receiver only

The server certificate is not an authority (`CA:FALSE`), because rustls rejects an authority as a server.

Invariant: valid files are kept until a day before they expire, so that clients need not trust a new
authority. Never: writes the key of the authority to disk. The key signs one certificate and is then
discarded.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from receiver.durable.files import DISK, make_directories, write_unsynced
from receiver.supervisor.certificate import CA_NAME

VALID_DAYS = 365
PUBLIC_FILE_MODE = 0o644
PUBLIC_DIRECTORY_MODE = 0o755


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Return the paths of certificate and key; create them if missing, invalid or about to expire."""
    cert_file, key_file = directory / "cert.pem", directory / "key.pem"
    if not is_usable(directory, now=datetime.now(UTC)):
        _create(directory / CA_NAME, cert_file, key_file)
    return cert_file, key_file


def is_usable(directory: Path, *, now: datetime) -> bool:
    """Return whether the three files belong together and do not expire within a day."""
    try:
        authority = x509.load_pem_x509_certificate(DISK.read(directory / CA_NAME))
        server = x509.load_pem_x509_certificate(DISK.read(directory / "cert.pem"))
        key = serialization.load_pem_private_key(DISK.read(directory / "key.pem"), password=None)
        server.verify_directly_issued_by(authority)
    # A start that was interrupted between the three files left a set that does not match.
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    # A day of margin: the certificate is checked only at the start of the receiver.
    return key.public_key() == server.public_key() and server.not_valid_after_utc > now + timedelta(days=1)


def _create(ca_file: Path, cert_file: Path, key_file: Path) -> None:
    make_directories(ca_file.parent)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority(ca_key)
    server = _server_certificate(key.public_key(), authority, ca_key)
    key_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ca_bytes = authority.public_bytes(serialization.Encoding.PEM)
    # Neither synced nor atomic as a set: `is_usable` finds an incomplete set, and it is created again.
    write_unsynced(key_file, key_bytes)
    write_unsynced(ca_file, ca_bytes)
    # With its authority, for clients that show or check the whole chain.
    write_unsynced(cert_file, server.public_bytes(serialization.Encoding.PEM) + ca_bytes)
    # Exporters of other users read the authority. A mode set at creation would depend on the umask.
    DISK.set_mode(ca_file, PUBLIC_FILE_MODE)
    DISK.set_mode(ca_file.parent, PUBLIC_DIRECTORY_MODE)


def _authority(ca_key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name(f"trace-drain local authority {os.urandom(4).hex()}")
    key_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    return (
        _valid(x509.CertificateBuilder())
        .subject_name(name)
        .issuer_name(name)
        .public_key(ca_key.public_key())
        # Zero: the authority signs server certificates only, never another authority.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(key_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _server_certificate(
    key: ec.EllipticCurvePublicKey, authority: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    ca_key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _valid(x509.CertificateBuilder())
        .subject_name(_name("trace-drain self-signed"))
        .issuer_name(authority.subject)
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_addresses()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        # Strict verification, the default since Python 3.13, requires this link to the key of the authority.
        .add_extension(ca_key_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _valid(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        builder.serial_number(x509.random_serial_number())
        # An hour in the past, for clients whose clock is slow.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _addresses() -> list[x509.GeneralName]:
    # A dictionary, because the host may be named `localhost`.
    names = {"localhost": None, socket.gethostname(): None}
    return [
        *(x509.DNSName(name) for name in names),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
