"""Why there is no connection, and what of that no retry mends: somebody has to change the order."""

from __future__ import annotations

import asyncio
import ssl

from receiver.load.plan import tls_context

NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
"""What OpenSSL calls an answer in plain text: it depends on its release."""
EXPECTED_TLS = "TLS is spoken there, and the URL says http; expected https://"
EXPECTED_PLAIN = "no TLS is spoken there, and the URL says https; expected http://, or another port"


def told(reason: OSError) -> str:
    """Say why there is no connection."""
    match reason:
        case TimeoutError():
            return "time-out"
        case ConnectionRefusedError():
            return "connection refused"
        case ssl.SSLError():
            return f"TLS: {reason.reason or 'failed'}"
        case _:
            return "no connection"


def unmendable(reason: OSError) -> str:
    """Say what has to be changed before there can be a connection; empty: a retry may do."""
    match reason:
        case ssl.SSLCertVerificationError():
            found = reason.verify_message.rstrip(".")
            return f"certificate is not trusted: {found}; expected one that --ca FILE trusts, or --insecure"
        case ssl.SSLError() if reason.reason in NOT_TLS:
            return EXPECTED_PLAIN
        case _:
            return ""


async def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    """Tell whether a server that closes without a word would have liked a handshake."""
    context = tls_context(ca_file=None, is_insecure=True)
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError:
        return False
    writer.transport.abort()
    return True
