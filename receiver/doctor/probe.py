"""Connections and requests of the doctor, each within a deadline.

Never: follows a redirect, uses a proxy of the environment, or reads more than `ANSWER_BYTES_MAX`.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from receiver.doctor.step import StepFailed, StepWarning
from receiver.errors import OperatorError
from receiver.printable import harmless_text
from receiver.settings import CERTIFICATE_DAYS_MIN
from receiver.sizes import size_text

ANSWER_BYTES_MAX = 64 << 10
_NAME = ("is for another name than '{}'", "Issue it for the name in the URL, or correct the name.")
_CHAIN = (
    "has a chain that is not trusted: an intermediate certificate is missing, or the authority is private",
    "Put the whole chain into tls.cert_file; to check a private authority, pass its file with --ca.",
)
CERTIFICATE_CAUSES = {
    9: ("is not valid yet", "Correct the clock, or issue the certificate again."),
    10: ("has expired", "Renew it, and let the server load the new one."),
    18: (
        "is self-signed, so senders do not trust it",
        "Use one of a public authority; to check a private one, pass its file with --ca.",
    ),
    62: _NAME,
    64: _NAME,
    **dict.fromkeys((2, 19, 20, 21), _CHAIN),
}
"""OpenSSL's code for the reason that a certificate is not accepted → cause and fix."""


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    status: int
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(slots=True)
class Target:
    host: str
    port: int
    path: str
    is_tls: bool
    timeout_s: float
    ca_file: str | None = None
    addresses: list[str] = field(default_factory=list)

    def resolve(self) -> str:
        # In a thread: the resolver of the system can be neither interrupted nor given a deadline.
        resolving = threading.Thread(target=self._look_up, daemon=True)
        resolving.start()
        resolving.join(self.timeout_s)
        if not self.addresses:
            raise StepFailed(
                f"the host name '{self.host}' has no address",
                "Create its DNS record, or correct the name in the URL.",
            )
        shown = ", ".join(self.addresses[:4])
        if not any(ip_address(each.partition("%")[0]).is_global for each in self.addresses):
            raise StepWarning(
                f"{self.host} has only private addresses: {shown}",
                "A platform outside this network cannot reach it; give it a public address.",
            )
        return shown

    def _look_up(self) -> None:
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self.addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))

    def connect(self) -> str:
        """Open a TCP connection and close it."""
        try:
            self._tcp().close()
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            cause = "refuses connections" if is_refused else "does not answer"
            fix = "Start the receiver or the proxy" if is_refused else "Open the port in the firewall"
            raise StepFailed(
                f"port {self.port} of {self.host} {cause}", f"{fix}, or correct the port in the URL."
            ) from error
        return f"port {self.port} accepts connections"

    def handshake(self) -> str:
        """Perform a TLS handshake, and check chain, name and expiry of the certificate."""
        try:
            with self._tls(self._tcp()) as connection:
                certificate: dict[str, Any] = dict(connection.getpeercert() or {})
                version = connection.version()
        except ssl.SSLCertVerificationError as error:
            raise _certificate_failure(self.host, error) from error
        except OSError as error:
            reason = getattr(error, "reason", None) or ""
            if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
                raise StepFailed(
                    f"port {self.port} speaks plain HTTP, not TLS",
                    "Set tls.cert_file and tls.key_file, or use the port of the proxy that terminates TLS.",
                ) from error
            raise StepFailed(
                f"the TLS handshake fails: {reason.lower().replace('_', ' ') or 'no answer'}",
                "Let the server offer TLS 1.2 or 1.3, without a client certificate.",
            ) from error
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])))  # noqa: DTZ006
        days = (ends - datetime.now()).days  # noqa: DTZ005 - both local
        if days < CERTIFICATE_DAYS_MIN:
            raise StepWarning(f"the certificate expires in {days} days", "Renew it.")
        return f"{version}; the certificate is for {self.host} and valid for {days} days"

    def request(self, method: str, headers: Mapping[str, str], body: bytes = b"") -> EndpointAnswer:
        """Send a request on a new connection and return its answer."""
        connection = http.client.HTTPConnection(self.host, self.port)
        # A socket's timeout starts again with each byte; the timer ends the whole exchange.
        timer = threading.Timer(self.timeout_s, lambda: _shut(connection.sock))
        timer.daemon = True
        began_s = time.monotonic()
        try:
            raw = connection.sock = self._tcp()
            timer.start()
            if self.is_tls:
                # The timer ends a handshake by its raw socket.
                connection.sock = self._tls(raw)
            connection.request(method, self.path, body, dict(headers))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return EndpointAnswer(response.status, names, response.read(ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException) as error:
            seconds = time.monotonic() - began_s
            raise StepFailed(
                f"a {method} of {size_text(len(body))} is not answered: closed after {seconds:.1f} s",
                "Look at the log of the proxy: it may buffer the body, or not reach the receiver.",
            ) from error
        finally:
            timer.cancel()
            connection.close()

    def _tcp(self) -> socket.socket:
        # All addresses together have the time-out of one.
        limit_s = self.timeout_s / len(self.addresses)
        for address in self.addresses[:-1]:
            with suppress(OSError):
                return self._connected(address, limit_s)
        return self._connected(self.addresses[-1], limit_s)

    def _connected(self, address: str, limit_s: float) -> socket.socket:
        connection = socket.create_connection((address, self.port), limit_s)
        connection.settimeout(self.timeout_s)
        return connection

    def _tls(self, raw: socket.socket) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.ca_file)
        context.set_alpn_protocols(["http/1.1"])
        return context.wrap_socket(raw, server_hostname=self.host)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError, AttributeError):
        connection.shutdown(socket.SHUT_RDWR)


def _certificate_failure(host: str, error: ssl.SSLCertVerificationError) -> StepFailed:
    cause, fix = CERTIFICATE_CAUSES.get(
        error.verify_code, (f"is not accepted: {error.verify_message}", "Issue it again.")
    )
    return StepFailed(f"the certificate {cause.format(host)}", fix)


def target_of(url: str, timeout_s: float, ca_file: str | None) -> Target:
    """Return the target of a URL. Raises `OperatorError` for text that is no URL."""
    expected = "URL: expected https://HOST[:PORT]/PATH without a user"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OperatorError(expected) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise OperatorError(expected)
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise OperatorError("URL: its path has characters that must be percent-encoded")
    return Target(parts.hostname, port or (443 if is_tls else 80), path, is_tls, timeout_s, ca_file)


def shown_location(answer: EndpointAnswer) -> str:
    """Return where an answer redirects to, without a query, which may hold a secret."""
    return harmless_text(answer.headers.get("location", "").partition("?")[0][:200])
