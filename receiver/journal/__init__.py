"""The journal: write-ahead log of acknowledged deliveries between intake and store.

Layers: frame (bytes) → segment (one file) → appender (used by the intake) and segments (used by the writer).

    DATA/journal/
    └── 9f86d081884c7d65/            one epoch, that is one start of an intake: 64 random bits
        ├── start                    process id and time; locked while that intake runs
        ├── 0000000004.native.lz4    sealed: waits for the writer, deleted once stored
        ├── 0000000005.open          being written
        └── 0000000003.cut           rare: how many bytes of `0000000003.open` are valid

Invariant: every acknowledged record is read back exactly once, even after a crash, a power failure or a full
disk. Never: uses the network, a database or an event loop.
"""
