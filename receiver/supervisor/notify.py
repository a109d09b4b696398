"""Notifications for systemd (`Type=notify`): ready, reloading, stopping. Without systemd they do nothing."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping


def notify(environ: Mapping[str, str], state: str) -> None:
    """Send one state, such as `READY=1`. Errors are ignored: the receiver works without systemd."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # The abstract namespace: systemd writes @ for the leading zero byte.
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


def reloading() -> str:
    """Return the state that announces a reload. `READY=1` announces its end."""
    # With `Type=notify-reload`, systemd matches the reload to its signal by this time.
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
