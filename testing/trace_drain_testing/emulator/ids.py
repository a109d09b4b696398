"""Ids and secrets of the emulated platform. The same seed makes the same values, in the same order."""

from __future__ import annotations

from random import Random

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH = 24


class Ids:
    """Generator of ids, which returns none twice."""

    def __init__(self, seed: int) -> None:
        # Predictable secrets are the purpose: the emulator protects nothing.
        self._random = Random(seed)  # noqa: S311
        self._made: set[str] = set()

    def new(self, prefix: str) -> str:
        """Return a new id with the prefix, such as `prj_4fV…`."""
        while (made := prefix + "".join(self._random.choices(ALPHABET, k=LENGTH))) in self._made:
            pass
        self._made.add(made)
        return made

    def reserve(self, taken: str) -> None:
        """Never return this id, which a caller chose."""
        self._made.add(taken)
