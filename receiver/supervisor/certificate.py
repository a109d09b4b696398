"""Certificates in the supervisor: the self-signed certificate, and the last valid content of the files.

Invariant: the last good certificate is kept in memory, for an intake that starts while the files are broken.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

import msgspec

from receiver.channel import Pems
from receiver.errors import OperatorError
from receiver.intake.connections.tls import Stamp, as_files, build_context, stamp_of
from receiver.settings import Settings, Tls

CA_NAME = "ca.crt"
"""File next to the self-signed certificate that holds its authority, which clients must trust."""


class LastGood:
    def __init__(self, tls: Tls) -> None:
        self.pems: Pems | None = None
        self._stamp: Stamp | None = None
        self.refresh(tls)

    def refresh(self, tls: Tls) -> None:
        """Read the files if they changed. Call it as often as the intakes check them."""
        stamp = stamp_of(tls)
        if not tls.cert_file or stamp == self._stamp:
            return
        # Before reading, so that broken files are read once and not every second until they are repaired.
        self._stamp = stamp
        # The intakes report unusable files. Here the last good content simply stays.
        with suppress(OSError, OperatorError):
            pems = Pems(_content(tls.cert_file), _content(tls.key_file), _content(tls.client_ca_file))
            # Checks the bytes that were read: the files themselves may be replaced at any time.
            with as_files(pems) as files:
                build_context(files)
            self.pems = pems


def _content(file: str) -> bytes:
    return Path(file).read_bytes() if file else b""


def with_certificate(settings: Settings, data_dir: Path) -> Settings:
    """Return settings with certificate files; create a certificate if `tls.self_signed` is set."""
    if not settings.tls.self_signed:
        return settings
    # By name and not at the top: importing cryptography takes as long as importing a complete intake.
    self_signed = resolve_name("receiver.supervisor.self_signed:self_signed")
    cert_file, key_file = self_signed(data_dir / "tls")
    tls = msgspec.structs.replace(settings.tls, cert_file=str(cert_file), key_file=str(key_file))
    return msgspec.structs.replace(settings, tls=tls)
