"""A child that takes two deliveries and a copy in, and hands them over: the least that meets every call.

python -m tests.crash.hand_over_once DATA
"""

from __future__ import annotations

import sys
from pathlib import Path

from receiver.redelivery.window import Window
from receiver.writer.progress import Progress
from tests.crash.hand_over import WINDOW, Say, TellingStore, aloud, intake_of, ledger_of, take_in, writer_of


def live(data: Path, say: Say) -> None:
    """One segment: two records, so that it is rewritten, and a copy that is left out."""
    intake = intake_of(data)
    take_in(intake, say, 0)
    take_in(intake, say, 1, 0)
    intake.seal()
    window = Window(data / "redelivery", WINDOW, lambda: 0.0)
    writer = writer_of(data, TellingStore(say), window, ledger_of(data), Progress())
    writer.drain()
    intake.close()


if __name__ == "__main__":
    live(Path(sys.argv[1]), aloud)
