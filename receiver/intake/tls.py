"""TLS of the drain endpoint, and certificates that change while it runs.

Keeps: a certificate that cannot be loaded leaves the old one in force, also for a process that starts just
    then: the supervisor hands on the last good one. Connections never notice a reload. Whether clients are
    asked for a certificate is settled at the start.
Never: a context changed in place. A new one is built whole and handshakes are pointed at it.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

from receiver.channel import Pems
from receiver.errors import OperatorError
from receiver.settings import Tls

H2 = "h2"
HANDSHAKE_ROUNDS = 3
DAY_S = 86_400
ENDING_DAYS = 14
"""A certificate that ends sooner should have been renewed by now."""
Stamp = tuple[tuple[int, int, int], ...]
CHANGING = (OSError, ValueError, LookupError)
"""What files raise that are changed while they are read a second time."""


def build_context(tls: Tls) -> ssl.SSLContext:
    """Build the context for these files. Raises `OperatorError` naming what is wrong with them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # h2 is chosen only by clients that offer nothing else: they are logged as gRPC and answered 505.
    context.set_alpn_protocols(["http/1.1", H2])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
        if tls.client_ca_file:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as reason:  # ssl.SSLError is an OSError
        raise OperatorError(
            f"certificate '{tls.cert_file}', key '{tls.key_file}': {reason}; expected a PEM chain and its key"
        ) from reason
    return context


def expires_at_s(tls: Tls) -> float:
    """Learn when the certificate ends as a sender would, by a handshake in memory; 0: it is not valid."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.cert_file, tls.key_file or None)
    sender = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sender.check_hostname = False
    sender.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    sender.load_verify_locations(tls.cert_file)
    to_server, to_sender = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        sender.wrap_bio(to_sender, to_server),
        server.wrap_bio(to_server, to_sender, server_side=True),
    )
    try:
        for end in ends * HANDSHAKE_ROUNDS:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError:
        return 0.0
    certificate = ends[0].getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def ending_reason(left_s: float) -> str:
    """Why a certificate with so much time left needs somebody; nothing: it does not."""
    if left_s <= 0:
        return "certificate is not valid now"
    if left_s < ENDING_DAYS * DAY_S:
        return f"certificate ends in {left_s / DAY_S:.0f} days; expected it renewed {ENDING_DAYS} days before"
    return ""


def stamp_of(tls: Tls) -> Stamp:
    """Give what changes when one of the files does."""
    stamps = []
    for name in (tls.cert_file, tls.key_file, tls.client_ca_file):
        try:
            found = Path(name).stat() if name else None
        except OSError:
            found = None
        stamps.append((found.st_mtime_ns, found.st_ino, found.st_size) if found else (0, 0, 0))
    return tuple(stamps)


@contextlib.contextmanager
def as_files(pems: Pems) -> Iterator[Tls]:
    """Lend these bytes as files in memory, which is all that OpenSSL reads through Python."""
    with contextlib.ExitStack() as lent:

        def path_of(content: bytes) -> str:
            if not content:
                return ""
            file = lent.enter_context(os.fdopen(os.memfd_create("pem"), "wb"))
            file.write(content)
            file.flush()
            return f"/proc/self/fd/{file.fileno()}"

        yield Tls(
            cert_file=path_of(pems.cert), key_file=path_of(pems.key), client_ca_file=path_of(pems.client_ca)
        )


class Certificates:
    """The certificates in force."""

    def __init__(self, tls: Tls, warn: Callable[[str], None], last_good: Pems | None = None) -> None:
        self._tls = tls
        self._warn = warn
        self._stamp = stamp_of(tls)
        self.trouble = ""
        """Why the newest files are not in force, or nothing."""
        try:
            self._use(tls)
        except (OperatorError, *CHANGING) as reason:
            if last_good is None:
                raise
            with as_files(last_good) as files:
                self._use(files)
            self._stamp = ()  # to be looked at again
            self.trouble = str(reason)
        self.context = self._current
        """What the listener is given; every handshake is pointed at the newest context from it."""
        self.context.sni_callback = self._point_at_current

    def _use(self, tls: Tls) -> None:
        self._current, self.expires_at_s = build_context(tls), expires_at_s(tls)

    def _point_at_current(
        self, handshake: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        handshake.context = self._current

    def reload_if_changed(self) -> None:
        """Load the files again if they are not those in force."""
        stamp = stamp_of(self._tls)
        if stamp != self._stamp:
            self._stamp = stamp
            self._load(self._tls)

    def reload(self, tls: Tls) -> None:
        """Load these files, changed or not."""
        self._stamp = stamp_of(tls)
        self._load(tls)

    def _load(self, tls: Tls) -> None:
        if bool(tls.client_ca_file) != bool(self._tls.client_ca_file):
            # A handshake takes over the new context's certificates, not whom it asks for one.
            self.trouble = "tls.client_ca_file is turned on or off; expected at the next start"
            self._warn(self.trouble)
            return
        self._tls = tls
        try:
            self._use(tls)
        except OperatorError as reason:
            self.trouble = str(reason)
            self._warn(self.trouble)
        except CHANGING as reason:
            # They are read twice and changed in between: to be looked at again.
            self._stamp = ()
            self.trouble = f"certificate '{tls.cert_file}' changed while it was read: {type(reason).__name__}"
            self._warn(self.trouble)
        else:
            self.trouble = ""
