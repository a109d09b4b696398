"""A child that appends until it is killed, and says on standard output what it was promised."""

from __future__ import annotations

import sys
from pathlib import Path

from receiver.errors import DiskTrouble
from tests.support.journal import append, appender


def main(root: Path, count: int, segment_rows_max: int) -> None:
    """Append `count` records, then leave properly."""
    journal = appender(root=root, segment_rows_max=segment_rows_max)
    for number in range(count):
        name = f"{journal.epoch:x}-{number}"
        say("issued", name)
        try:
            append(journal, name)
        except DiskTrouble:
            say("refused", name)
        else:
            say("acknowledged", name)
    journal.close()


def say(what: str, name: str) -> None:
    """Tell the parent, in one write."""
    sys.stdout.write(f"{what} {name}\n")
    sys.stdout.flush()


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
