"""TLS of the drain endpoint, with certificates that are reloaded while it runs.

Invariant: if a certificate cannot be loaded, the last valid certificate stays in force, even in a process
that starts at that moment: the supervisor passes it on. A reload does not affect open connections. Whether
clients need a certificate is fixed at the start.
Never: modifies a context in place. A reload builds a new context, which later handshakes use.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

from receiver.channel import Pems
from receiver.errors import OperatorError
from receiver.settings import CERTIFICATE_DAYS_MIN, Tls

H2 = "h2"
HANDSHAKE_ROUNDS = 3
"""Rounds of messages after which a handshake in memory is complete."""
DAY_S = 86_400
Stamp = tuple[tuple[int, int, int], ...]
FILE_READ_ERRORS = (OSError, ValueError, LookupError)
"""Errors that occur if the files change between the two reads of a load."""


def build_context(tls: Tls) -> ssl.SSLContext:
    """Build the context for these files. Raises `OperatorError` that names the files and the cause."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Only clients that offer nothing else negotiate h2: they are logged as gRPC and answered 505.
    context.set_alpn_protocols(["http/1.1", H2])
    # Renegotiation lets a peer cause costly handshakes; compression reveals secrets by length (CRIME).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
        if tls.client_ca_file:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise OperatorError(
            f"certificate '{tls.cert_file}', key '{tls.key_file}': {error}; expected a PEM chain and its key"
        ) from error
    return context


def expires_at_s(tls: Tls) -> float:
    """Return when the certificate expires, by a handshake in memory; 0 if a client would reject it."""
    # `ssl` shows the dates of a certificate only to a peer that has verified it.
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.cert_file, tls.key_file or None)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only the validity period matters here, not the name or the issuer.
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(tls.cert_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    peers = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    try:
        for peer in peers * HANDSHAKE_ROUNDS:
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.do_handshake()
    except ssl.SSLCertVerificationError:
        return 0.0
    certificate = peers[0].getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def expiry_warning(left_s: float) -> str:
    """Return the warning for a certificate that expires in `left_s`; empty if it is not due for renewal."""
    if left_s <= 0:
        return "certificate is not valid now; renew tls.cert_file"
    if left_s < CERTIFICATE_DAYS_MIN * DAY_S:
        return f"certificate expires in {left_s / DAY_S:.0f} days; expected at least {CERTIFICATE_DAYS_MIN}"
    return ""


def stamp_of(tls: Tls) -> Stamp:
    """Return a value that changes when one of the files changes."""
    stamps = []
    for name in (tls.cert_file, tls.key_file, tls.client_ca_file):
        try:
            # Inode and size too: a file that replaces another by a rename may have the same time.
            status = Path(name).stat() if name else None
        except OSError:
            # The file may be missing for a moment while it is replaced.
            status = None
        stamps.append((status.st_mtime_ns, status.st_ino, status.st_size) if status else (0, 0, 0))
    return tuple(stamps)


@contextlib.contextmanager
def as_files(pems: Pems) -> Iterator[Tls]:
    """Provide these bytes as files in memory: Python's `ssl` loads a key and chain only from files."""
    with contextlib.ExitStack() as open_files:

        def path_of(content: bytes) -> str:
            if not content:
                return ""
            file = open_files.enter_context(os.fdopen(os.memfd_create("pem"), "wb"))
            file.write(content)
            file.flush()
            return f"/proc/self/fd/{file.fileno()}"

        yield Tls(
            cert_file=path_of(pems.cert), key_file=path_of(pems.key), client_ca_file=path_of(pems.client_ca)
        )


class Certificates:
    """The current certificates and their TLS context."""

    def __init__(self, tls: Tls, warn: Callable[[str], None], last_good: Pems | None = None) -> None:
        self._tls = tls
        self._warn = warn
        # Before the load: files that change during it have another stamp at the next check.
        self._stamp = stamp_of(tls)
        self.trouble = ""
        """Reason that the newest files are not in force; empty if they are."""
        try:
            self._use(tls)
        except (OperatorError, *FILE_READ_ERRORS) as error:
            # Without an earlier certificate the process cannot serve TLS at all.
            if last_good is None:
                raise
            with as_files(last_good) as files:
                self._use(files)
            self._stamp = ()  # load the files again at the next check
            self.trouble = str(error)
        self.context = self._current
        """The listener's context; its SNI callback switches each handshake to the newest context."""
        # OpenSSL calls it in every handshake, even without a server name.
        self.context.sni_callback = self._switch_to_current

    def _use(self, tls: Tls) -> None:
        self._current, self.expires_at_s = build_context(tls), expires_at_s(tls)

    def _switch_to_current(
        self, handshake: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        handshake.context = self._current

    def reload_if_changed(self) -> None:
        """Load the files if they have changed since they were last read."""
        stamp = stamp_of(self._tls)
        if stamp != self._stamp:
            self._stamp = stamp
            self._load(self._tls)

    def reload(self, tls: Tls) -> None:
        """Load these files even if they have not changed."""
        # Before the load, as in `__init__`.
        self._stamp = stamp_of(tls)
        self._load(tls)

    def _load(self, tls: Tls) -> None:
        if bool(tls.client_ca_file) != bool(self._tls.client_ca_file):
            # `SSLObject.context` replaces the certificates of a handshake, not its `verify_mode`.
            self.trouble = "tls.client_ca_file was added or removed; restart the receiver to apply it"
            self._warn(self.trouble)
            return
        self._tls = tls
        try:
            self._use(tls)
        except OperatorError as error:
            self.trouble = str(error)
            self._warn(self.trouble)
        except FILE_READ_ERRORS as error:
            # The files changed between the two reads: load them again at the next check.
            self._stamp = ()
            self.trouble = f"certificate '{tls.cert_file}' changed while it was read: {type(error).__name__}"
            self._warn(self.trouble)
        else:
            self.trouble = ""
