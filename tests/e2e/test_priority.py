"""CPU priority of the processes: queries and INSERTs yield to the intakes."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from receiver.store_process.run import NICENESS
from tests.e2e.receiver_process import ReceiverProcess


def niceness_of(pid: int) -> int:
    """Return the niceness of most threads: the engine changes that of a few, if it is privileged."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    ((niceness, _),) = Counter(
        os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in threads
    ).most_common(1)
    return niceness


def test_threads_of_the_store_process_yield_to_the_intakes(receiver: ReceiverProcess) -> None:
    pids = receiver.state()["pids"]
    own = os.getpriority(os.PRIO_PROCESS, 0)

    assert niceness_of(pids["intake"][0]) == own
    assert niceness_of(pids["store"]) == own + NICENESS
