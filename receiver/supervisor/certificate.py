"""Certificates in the supervisor: the self-signed one, and the last valid content of the certificate files.

Invariant: the last good certificate is kept in memory, for an intake that starts while the files are broken.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from receiver.channel import Pems
from receiver.errors import OperatorError
from receiver.intake.tls import Stamp, as_files, build_context, stamp_of
from receiver.settings import Settings, Tls
from receiver.supervisor.lazy_imports import self_signed

CA_NAME = "ca.crt"
"""File beside the self-signed certificate: its certificate authority, for clients to trust."""


class LastGood:
    """Newest content of the certificate files that could be loaded."""

    def __init__(self, tls: Tls) -> None:
        self.pems: Pems | None = None
        self._stamp: Stamp | None = None
        self.look(tls)

    def look(self, tls: Tls) -> None:
        """Read the files if they changed. Call it as often as the intakes check them."""
        stamp = stamp_of(tls)
        if not tls.cert_file or stamp == self._stamp:
            return
        self._stamp = stamp
        with suppress(OSError, OperatorError):
            pems = Pems(_content(tls.cert_file), _content(tls.key_file), _content(tls.client_ca_file))
            with as_files(pems) as files:
                build_context(files)
            self.pems = pems


def _content(file: str) -> bytes:
    return Path(file).read_bytes() if file else b""


def with_certificate(settings: Settings, data_dir: Path) -> Settings:
    """Return settings with certificate files; create a certificate if `tls.self_signed` is set."""
    if not settings.tls.self_signed:
        return settings
    cert_file, key_file = self_signed(data_dir / "tls")
    tls = msgspec.structs.replace(settings.tls, cert_file=str(cert_file), key_file=str(key_file))
    return msgspec.structs.replace(settings, tls=tls)
