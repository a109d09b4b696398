"""Parser of a child's output, and the check that its journal keeps what was acknowledged."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from tests.support.journal import recovered

CHILD = "tests.crash.append_forever"


class Promises(NamedTuple):
    """Names of records by outcome. The last line of the output may be incomplete."""

    issued: set[str]
    acknowledged: set[str]
    refused: set[str]

    @classmethod
    def parse(cls, output: str) -> Self:
        """Parse the output of a child; log lines are ignored."""
        lines = [line.split() for line in output.splitlines(keepends=True) if line.endswith("\n")]
        return cls(*({words[1] for words in lines if words[:1] == [outcome]} for outcome in cls._fields))

    def assert_kept(self, root: Path) -> None:
        """Assert acknowledged ⊆ recovered ⊆ issued, each once, and no refused record."""
        names = recovered(root=root)
        assert len(names) == len(set(names))
        assert self.acknowledged <= set(names) <= self.issued - self.refused
