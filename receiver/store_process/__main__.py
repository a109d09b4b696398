"""`python -m receiver.store_process --channel-fd N`: the store process, as the supervisor starts it."""

import os

from receiver import process
from receiver.store_process.run import start_store_process

NICENESS = 5
"""Added to that of the intakes, whose answers then wait less for the CPU time of queries and INSERTs."""

if __name__ == "__main__":
    # Before any thread starts, because a thread inherits it.
    os.nice(NICENESS)
    process.run(start_store_process)
