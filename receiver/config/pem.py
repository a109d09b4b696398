"""A certificate and a key that were read and cannot be used: which of the two is wrong, and how.

Never: a byte of either in a message.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

_PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----")
_CERTIFICATE = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)
_STRANGERS = frozenset({"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""What OpenSSL calls a key of another certificate; the second one where they are not even of one kind."""


def why_unusable(cert_file: str, key_file: str, reason: ssl.SSLError | ValueError) -> Iterator[str]:
    """Say why they could not be loaded, each by itself if possible, together if they are of two pairs."""
    certificate, key = f"tls.cert_file '{cert_file}'", f"tls.key_file '{key_file}'"
    in_cert, in_key = Path(cert_file).read_bytes(), Path(key_file).read_bytes()
    lacks_certificate, lacks_key = not _CERTIFICATE.search(in_cert), not _KEY.search(in_key)
    if lacks_certificate:
        yield f"{certificate} {_found(in_cert)} no certificate; expected a PEM chain"
    if lacks_key:
        yield f"{key} {_found(in_key)} no private key; expected the one of the certificate in PEM"
    elif _ENCRYPTED.search(in_key):
        yield f"{key} asks for a passphrase; expected a key without one"
    elif not lacks_certificate:
        is_of_another = getattr(reason, "reason", None) in _STRANGERS
        found = "do not belong together" if is_of_another else "cannot be loaded, one of them is damaged"
        yield f"{certificate} and {key} {found}; expected a PEM chain and its key"


def _found(content: bytes) -> str:
    return "holds" if _PEM.search(content) else "is not PEM and holds"
