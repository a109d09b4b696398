"""Base of the results of a benchmark, which are stored in a JSON file. A run replaces only its own part."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec


class ResultsFile(msgspec.Struct):
    """Content of the file; every field has a default."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; an absent file gives empty results."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
