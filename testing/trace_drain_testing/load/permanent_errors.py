"""Texts of connection errors, and detection of errors that only a change of the command line can fix."""

from __future__ import annotations

import asyncio
import ssl

from trace_drain_testing.load.plan import tls_context

NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""OpenSSL's errors for a response in plain text, in all of its releases."""
EXPECTED_TLS = "the server expects TLS, and the URL has http; expected https://"
EXPECTED_PLAIN = "the server does not use TLS, and the URL has https; expected http://, or another port"


def failure_text(reason: OSError) -> str:
    """Return why the connection failed."""
    match reason:
        case TimeoutError():
            return "time-out"
        case ConnectionRefusedError():
            return "connection refused"
        case ssl.SSLError():
            return f"TLS: {reason.reason or 'failed'}"
        case _:
            return "no connection"


def permanent_error(reason: OSError) -> str:
    """Return what must change before a connection can succeed; empty if a retry may succeed."""
    match reason:
        case ssl.SSLCertVerificationError():
            why = reason.verify_message.rstrip(".")
            return f"certificate is not trusted: {why}; expected one that --ca FILE trusts, or --insecure"
        case ssl.SSLError() if reason.reason in NOT_TLS:
            return EXPECTED_PLAIN
        case _:
            return ""


async def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    """Return whether the server completes a TLS handshake."""
    # An untrusted certificate does not matter, because only the protocol is tested.
    context = tls_context(ca_file=None, is_insecure=True)
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError:
        return False
    # Without waiting for the server to close the connection.
    writer.transport.abort()
    return True
