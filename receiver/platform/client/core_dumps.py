"""Forbids core dumps of a process that has a token or key of the platform."""

from __future__ import annotations

import ctypes
from typing import Final

from receiver.logs import limited

_PR_SET_DUMPABLE: Final = 4


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process and access of other processes to its memory: both contain tokens."""
    # Not `RLIMIT_CORE`: a program that the kernel pipes core dumps to ignores it.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        limited.warning(
            "core dumps",
            "core dumps cannot be forbidden",
            error=f"errno {ctypes.get_errno()}",
            action="a core dump of this process can contain access tokens",
        )
