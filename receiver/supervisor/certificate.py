"""Certificates in the supervisor: the self-signed one, and the last one that could be loaded.

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
from receiver.supervisor.late import self_signed

CA_NAME = "ca.crt"
"""Beside the self-signed certificate: the authority that signed it, for clients to trust."""


class LastGood:
    """The newest content of the certificate's files that could be loaded."""

    def __init__(self, tls: Tls) -> None:
        self.pems: Pems | None = None
        self._stamp: Stamp | None = None
        self.look(tls)

    def look(self, tls: Tls) -> None:
        """Read the files if they changed. To be called as often as the intakes look."""
        stamp = stamp_of(tls)
        if not tls.cert_file or stamp == self._stamp:
            return
        self._stamp = stamp
        with suppress(OSError, OperatorError):
            found = Pems(_content(tls.cert_file), _content(tls.key_file), _content(tls.client_ca_file))
            with as_files(found) as files:
                build_context(files)
            self.pems = found


def _content(file: str) -> bytes:
    return Path(file).read_bytes() if file else b""


def with_certificate(settings: Settings, data_dir: Path) -> Settings:
    """Return settings that name a certificate; make one if `tls.self_signed` asks for it."""
    if not settings.tls.self_signed:
        return settings
    cert_file, key_file = self_signed(data_dir / "tls")
    tls = msgspec.structs.replace(settings.tls, cert_file=str(cert_file), key_file=str(key_file))
    return msgspec.structs.replace(settings, tls=tls)
