"""Encodings of bytes in the conformance samples: base64, or zlib then base64."""

from __future__ import annotations

import base64
import zlib


def decode(encoded: dict[str, str]) -> bytes:
    """Return the decoded bytes."""
    if "zlib_base64" in encoded:
        return zlib.decompress(base64.b64decode(encoded["zlib_base64"]))
    return base64.b64decode(encoded["base64"])
