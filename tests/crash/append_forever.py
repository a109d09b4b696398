"""A child that appends until it is killed, and says on standard output what it was promised."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.journal_support import append, appender


def main(root: Path, count: int) -> None:
    """Append `count` records, a segment of three each, then leave properly."""
    journal = appender(root=root, segment_rows_max=3)
    for number in range(count):
        name = f"{journal.epoch:x}-{number}"
        print("issued", name, flush=True)  # noqa: T201 - the parent reads it
        append(journal, name)
        print("acknowledged", name, flush=True)  # noqa: T201 - as above
    journal.close()


main(Path(sys.argv[1]), int(sys.argv[2]))
