"""Options and environment of the command that starts a child."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import receiver
from receiver.settings import MIB

MALLOC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB), "MALLOC_TRIM_THRESHOLD_": str(32 * MIB)}
"""Settings of glibc's malloc: the process keeps this much of the memory that request bodies used, because
getting it from the kernel page by page costs as much as reading a body. Operators can override it."""


def import_options() -> list[str]:
    """Return Python's options for a child that must import the same package `receiver` as this process.

    With `-m`, Python looks into the working directory first, which may have another folder of this name.
    """
    # The working directory may have been deleted, or belong to a user whose files we may not read.
    with suppress(OSError):
        if Path(receiver.__file__).parents[1].samefile("."):
            return []
    return ["-P"]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: ours plus malloc settings, without systemd's variables."""
    ours = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
    return MALLOC_SETTINGS | {name: value for name, value in own.items() if name not in ours}
