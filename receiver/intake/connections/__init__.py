"""Connections of senders: listener, TLS, request parsing, time limits, eviction and load shedding."""
