"""Load generator: generates traffic, sends it as OTLP clients do, measures, and verifies the stored spans.

    traffic → wire → template → requests → client → tally → report        verify: compares with the store

Invariant: uses only the protocol and the API, and no internals of the receiver, so that it can detect errors
of the receiver.
"""
