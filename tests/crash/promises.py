"""What a child said before it ended, and whether the journal it left keeps it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.journal import recovered

ROOT = Path(__file__).parents[2]
CHILD = (sys.executable, "-B", "-m", "tests.crash.append_forever")


class Promises(NamedTuple):
    """Names of records, by what became of them. The last line may be cut."""

    issued: set[str]
    acknowledged: set[str]
    refused: set[str]

    @classmethod
    def read(cls, said: str) -> Self:
        """Understand what a child said, its log lines left out."""
        lines = [line.split() for line in said.splitlines(keepends=True) if line.endswith("\n")]
        return cls(*({words[1] for words in lines if words[:1] == [kind]} for kind in cls._fields))

    def assert_kept(self, root: Path) -> None:
        """Acknowledged ⊆ recovered ⊆ issued, each once, and nothing that was refused."""
        found = recovered(root=root)
        assert len(found) == len(set(found))
        assert self.acknowledged <= set(found) <= self.issued - self.refused
