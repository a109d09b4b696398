"""Metrics of spans for Prometheus: requests, errors and durations, each stored span counted once."""
