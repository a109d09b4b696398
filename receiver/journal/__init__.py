"""The journal: what is promised and not yet stored.

Frame (bytes) → segment (one file) → appender (the intake's end) and segments (the writer's end).

    DATA/journal/
    └── 9f86d081884c7d65/            one start of an intake: 64 random bits
        ├── start                    who and when; locked while that intake lives
        ├── 0000000004.native.lz4    sealed: waits for the writer, unlinked once stored
        ├── 0000000005.open          being written
        └── 0000000003.cut           rare: how much of `0000000003.open` was ever promised

Keeps: what was acknowledged is found again, once, whatever was killed, unplugged or filled up.
Never: a network, a database, an event loop.
"""
