"""Child process that appends until it is killed, and prints the outcome of each record."""

from __future__ import annotations

import sys
from pathlib import Path

from receiver.errors import DiskTrouble
from tests.support.journal import append, appender


def main(root: Path, count: int, segment_rows_max: int) -> None:
    """Append `count` records, then close the journal."""
    journal = appender(root=root, segment_rows_max=segment_rows_max)
    for number in range(count):
        name = f"{journal.epoch:x}-{number}"
        report("issued", name)
        try:
            append(journal, name)
        except DiskTrouble:
            report("refused", name)
        else:
            report("acknowledged", name)
    journal.close()


def report(outcome: str, name: str) -> None:
    """Print a line to the parent in one write."""
    sys.stdout.write(f"{outcome} {name}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
