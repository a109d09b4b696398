"""Ids and secrets of the emulated platform. The same seed generates the same values, in the same order."""

from __future__ import annotations

from random import Random

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH = 24


class Ids:
    def __init__(self, seed: int) -> None:
        # Predictable on purpose: the emulator protects no data.
        self._random = Random(seed)  # noqa: S311
        self._made: set[str] = set()

    def new(self, prefix: str) -> str:
        """Return a new id with the prefix, such as `prj_4fV…`."""
        while (made := prefix + "".join(self._random.choices(ALPHABET, k=LENGTH))) in self._made:
            pass
        self._made.add(made)
        return made

    def reserve(self, text: str) -> None:
        """Reserve an id that a caller chose, so that `new` never returns it."""
        self._made.add(text)
