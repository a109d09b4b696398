"""The certificate of `--tls-self-signed`.

Keeps: it is made once, then used again, so that clients can trust it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 365


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Certificate and key, made if they are not there or about to end."""
    cert_file, key_file = directory / "cert.pem", directory / "key.pem"
    if not is_usable(cert_file, now=datetime.now(UTC)) or not key_file.is_file():
        _make(cert_file, key_file)
    return cert_file, key_file


def is_usable(cert_file: Path, *, now: datetime) -> bool:
    """Whether there is one that does not end within a day."""
    try:
        found = x509.load_pem_x509_certificate(cert_file.read_bytes())
    except (OSError, ValueError):
        return False
    return found.not_valid_after_utc > now + timedelta(days=1)


def _make(cert_file: Path, key_file: Path) -> None:
    cert_file.parent.mkdir(mode=0o700, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    key_bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(key_file, key_bytes)
    _write(cert_file, _certificate(key).public_bytes(serialization.Encoding.PEM))


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trace-drain self-signed")])
    now = datetime.now(UTC)
    alternatives: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.DNSName(socket.gethostname()),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _write(file: Path, content: bytes) -> None:
    """Private from its first byte, and whole or not there."""
    beside = file.with_suffix(".new")
    beside.unlink(missing_ok=True)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as opened:
        opened.write(content)
    beside.replace(file)
