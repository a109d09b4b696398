"""Child process that commits two deliveries and a copy, and drains them: the shortest run with every call.

python -m tests.crash.commit_and_drain_once DATA
"""

from __future__ import annotations

import sys
from pathlib import Path

from receiver.redelivery.window import Window
from receiver.writer.progress import Progress
from tests.faults.commit_and_drain import (
    WINDOW,
    Report,
    ReportingStore,
    commit_deliveries,
    new_writer,
    open_appender,
    open_ledger,
    print_line,
)


def run_scenario(data: Path, report: Report) -> None:
    """Drain a segment of two records, so that it is rewritten, with a copy that is removed."""
    intake = open_appender(data)
    commit_deliveries(intake, report, 0)
    commit_deliveries(intake, report, 1, 0)
    intake.seal()
    window = Window(data / "redelivery", WINDOW, lambda: 0.0)
    writer = new_writer(data, ReportingStore(report), window, open_ledger(data), Progress())
    writer.drain()
    intake.close()


if __name__ == "__main__":
    run_scenario(Path(sys.argv[1]), print_line)
