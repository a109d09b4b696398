"""Store process of the receiver alone: writer and ledger."""

from __future__ import annotations

from receiver.store_process.run import main

if __name__ == "__main__":
    main()
