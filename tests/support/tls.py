"""TLS for tests: an authority, certificates for localhost that it issued, and clients that trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from receiver.intake.connections.tls import Certificates
from receiver.settings import Tls

AUTHORITY = trustme.CA()


def write_certificates(directory: Path, *, client_ca: bool = False) -> Tls:
    """Write a new certificate for localhost, replacing an existing one."""
    issued = AUTHORITY.issue_cert("localhost")
    cert, key, ca = directory / "tls.crt", directory / "tls.key", directory / "ca.crt"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    ca.write_bytes(AUTHORITY.cert_pem.bytes())
    return Tls(cert_file=str(cert), key_file=str(key), client_ca_file=str(ca) if client_ca else "")


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def certificates_in(directory: Path, *, client_ca: bool = False) -> Certificates:
    """Write and load a new certificate for localhost."""
    warnings: list[str] = []
    return Certificates(write_certificates(directory, client_ca=client_ca), warnings.append)


def client_hello() -> bytes:
    """Return the first message of a handshake."""
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    return hello.read()
