"""Diagnosis of a certificate and key that OpenSSL cannot load: which file is wrong, and why.

Never: puts a byte of either file into a message.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

_PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----")
_CERTIFICATE = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
# Two forms: PKCS#8, and the older one with a header inside the block.
_ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)
_MISMATCH = frozenset({"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""OpenSSL's errors if the key belongs to another certificate, of the same or another algorithm."""


def why_unusable(cert_file: str, key_file: str, reason: ssl.SSLError | ValueError) -> Iterator[str]:
    """Yield the reasons that the files could not be loaded: one for each wrong file, or one for both."""
    certificate, key = f"tls.cert_file '{cert_file}'", f"tls.key_file '{key_file}'"
    in_cert, in_key = Path(cert_file).read_bytes(), Path(key_file).read_bytes()
    lacks_certificate, lacks_key = not _CERTIFICATE.search(in_cert), not _KEY.search(in_key)
    if lacks_certificate:
        yield f"{certificate} {_contains(in_cert)} no certificate; expected a PEM chain"
    if lacks_key:
        yield f"{key} {_contains(in_key)} no private key; expected the certificate's key in PEM"
    elif _ENCRYPTED.search(in_key):
        yield f"{key} requires a passphrase; expected a key without one"
    # Both files look right on their own, so only OpenSSL's reason shows what is wrong.
    elif not lacks_certificate:
        is_mismatch = getattr(reason, "reason", None) in _MISMATCH
        problem = "do not belong together" if is_mismatch else "cannot be loaded: one of them is damaged"
        yield f"{certificate} and {key} {problem}; expected a PEM chain and its key"


def _contains(content: bytes) -> str:
    return "contains" if _PEM.search(content) else "is not PEM and contains"
