"""`python -m receiver.store_process --channel-fd N`: the store process, as the supervisor starts it."""

from receiver import process
from receiver.store_process.run import start_store_process

if __name__ == "__main__":
    process.run(start_store_process)
