"""The load harness: makes traffic, sends it as OTLP clients do, measures, and checks what was kept.

    traffic → wire → template → feed → client → tally → report        verify: what the store holds of it

Keeps: it knows the protocol and the API only, nothing of how a receiver does it: it must be able to show
a false claim.
"""
