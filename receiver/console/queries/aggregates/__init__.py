"""Queries that count spans: rates, errors, durations, calls between services."""
