"""Codes that were sent to the platform: DATA/platform/used-codes.json, with the digests of codes and states.

Invariant: a code is durable here before it is sent, so that neither a second submission nor a restart sends
it again. Never: a code itself.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from receiver.durable.files import DISK, Files, make_directories, write_durably
from receiver.logs import limited

KEPT_S = 86_400.0
"""Time for which a code is remembered; its state expires long before."""
CODES_MAX = 1_000
"""Number of codes that are remembered; the oldest is forgotten first."""


class _Used(msgspec.Struct, frozen=True):
    digests: tuple[str, str]
    at_s: float


class UsedCodes:
    """The codes that were used lately."""

    def __init__(self, directory: Path, now: Callable[[], float], files: Files = DISK) -> None:
        self._path = directory / "used-codes.json"
        self._now = now
        self._files = files
        self._lock = threading.Lock()
        self._used: list[_Used] | None = None

    def use(self, code: str, state: str) -> bool:
        """Note that a code and its state are used. Returns False if either was. Raises `OSError`."""
        entry = _Used((_digest(code), _digest(state)), self._now())
        with self._lock:
            if self._used is None:
                self._used = self._read()
            if any(set(entry.digests) & set(used.digests) for used in self._used):
                return False
            kept = [used for used in self._used if used.at_s > entry.at_s - KEPT_S]
            entries = [*kept, entry][-CODES_MAX:]
            make_directories(self._path.parent, self._files)
            write_durably(self._path, msgspec.json.encode(entries), files=self._files)
            self._used = entries
            return True

    def _read(self) -> list[_Used]:
        with suppress(FileNotFoundError):
            try:
                return msgspec.json.decode(self._files.read(self._path), type=list[_Used])
            except msgspec.DecodeError:
                # The platform refuses a second exchange as well.
                limited.warning(
                    "used codes",
                    "list of used codes cannot be read",
                    path=str(self._path),
                    action="a new list is begun",
                )
        return []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
