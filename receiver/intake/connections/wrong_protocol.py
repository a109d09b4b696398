"""Log texts for peers that cannot be served: the protocol that they speak, or why the TLS handshake failed.

Invariant: each cause has its own rate-limiting key, so that a frequent one does not hide another in the log.
Never: logs bytes from the peer. OpenSSL's own text is logged only for a cause that is not listed here.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace

from receiver.logs import limited
from receiver.refusals import refused

H2_PREFACE = b"PRI * HTTP/2.0"
TLS_HANDSHAKE_RECORD = b"\x16\x03"
USE_HTTP = "use an OTLP/HTTP exporter (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf) and port"


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason that a connection cannot be served."""

    key: str
    """Key for the rate limit of the log line."""
    error: str
    action: str


GRPC = Cause("grpc", "the client speaks HTTP/2, as gRPC does; only OTLP over HTTP/1.1 is served", USE_HTTP)
TLS_ON_PLAIN_PORT = Cause(
    "tls_on_plain_port",
    "the client speaks TLS; this port serves plain HTTP",
    "use http:// in the exporter's endpoint, or set tls.cert_file and tls.key_file",
)
NOT_HTTP = Cause("not_http", "the client does not speak HTTP", "find out which program connects to this port")
PLAIN_HTTP = Cause(
    "plain_http_on_tls_port",
    "the client speaks plain HTTP; this port serves HTTPS",
    "use https:// in the exporter's endpoint",
)
NOT_TLS = Cause(
    "not_tls",
    "the client does not speak TLS: plain-text gRPC or another protocol",
    "use https:// and an OTLP/HTTP exporter",
)
OLD_TLS = Cause(
    "tls_version", "no shared TLS version; 1.2 and 1.3 are served", "upgrade the client's TLS library"
)
NO_CIPHER = Cause("tls_cipher", "no shared cipher or signature algorithm", "upgrade the client's TLS library")
NOT_TRUSTED = Cause(
    "certificate_not_trusted",
    "the client does not trust the authority that issued the receiver's certificate",
    "give the client the authority's certificate, and tls.cert_file the whole chain",
)
CERTIFICATE_REJECTED = Cause(
    "certificate_rejected",
    "the client rejects the receiver's certificate",
    "check its host names and dates, and the client's log",
)
EXPIRED = Cause("certificate_expired", "the client rejects the certificate as expired", "renew tls.cert_file")
NO_CLIENT_CERTIFICATE = Cause(
    "client_certificate_missing",
    "the client sent no certificate; tls.client_ca_file requires one",
    "configure a client certificate in the exporter",
)
CLIENT_CERTIFICATE = Cause(
    "client_certificate_invalid",
    "the client's certificate is not valid",
    "issue it from an authority in tls.client_ca_file, and check its dates",
)
REJECTED_BY_CLIENT = Cause("tls_alert", "the client aborted the handshake", "look at the client's log")
CLOSED = Cause(
    "handshake_closed",
    "the client closed the connection during the handshake",
    "if it is an exporter, it may not trust the receiver's certificate",
)
TIMED_OUT = Cause(
    "handshake_timeout",
    "the handshake was not complete within limits.tls_handshake_timeout_s",
    "if it is an exporter, look for packet loss or a proxy in between",
)

CAUSE_OF_SSL_REASON = {
    "HTTP_REQUEST": PLAIN_HTTP,
    "HTTPS_PROXY_REQUEST": PLAIN_HTTP,
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "RECORD_LAYER_FAILURE": NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": NOT_TLS,
    "UNSUPPORTED_PROTOCOL": OLD_TLS,
    "VERSION_TOO_LOW": OLD_TLS,
    "UNKNOWN_PROTOCOL": OLD_TLS,
    "TLSV1_ALERT_PROTOCOL_VERSION": OLD_TLS,
    "NO_SHARED_CIPHER": NO_CIPHER,
    "NO_SUITABLE_SIGNATURE_ALGORITHM": NO_CIPHER,
    "NO_SUITABLE_KEY_SHARE": NO_CIPHER,
    "NO_SHARED_GROUPS": NO_CIPHER,
    "TLSV1_ALERT_UNKNOWN_CA": NOT_TRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": CERTIFICATE_REJECTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": CERTIFICATE_REJECTED,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": CERTIFICATE_REJECTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": EXPIRED,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": REJECTED_BY_CLIENT,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": NO_CLIENT_CERTIFICATE,
    "CERTIFICATE_VERIFY_FAILED": CLIENT_CERTIFICATE,
    "UNEXPECTED_EOF_WHILE_READING": CLOSED,
}


def protocol_of(first: bytes) -> Cause:
    """Return the protocol of a peer whose first bytes are not an HTTP request."""
    if first.startswith(H2_PREFACE):
        return GRPC
    # A handshake record, and major version 3, which all versions of TLS share.
    return TLS_ON_PLAIN_PORT if first.startswith(TLS_HANDSHAKE_RECORD) else NOT_HTTP


def handshake_cause(error: OSError) -> Cause:
    """Return why a TLS handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # The message is OpenSSL's fixed text for its error code; it has no text of the certificate.
        return replace(CLIENT_CERTIFICATE, error=f"{CLIENT_CERTIFICATE.error}: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or type(error).__name__
        text = f"TLS error: {reason.lower().replace('_', ' ')}"
        return CAUSE_OF_SSL_REASON.get(reason) or Cause(f"tls:{reason}", text, "look at the client's log")
    # asyncio raises ConnectionAbortedError for a handshake that takes too long.
    return TIMED_OUT if isinstance(error, TimeoutError | ConnectionAbortedError) else CLOSED


def warn(event: str, cause: Cause, peer: str, status: int = 0) -> None:
    """Log and note a connection that cannot be served. `status`: of its answer, if it got one."""
    refused.note(cause.key, status=status, peer=peer, error=cause.error, remedy=cause.action)
    limited.warning(cause.key, event, cause=cause.key, peer=peer, error=cause.error, action=cause.action)
