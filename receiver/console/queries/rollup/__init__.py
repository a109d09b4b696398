"""Rollups: counts of spans by hour, derived from the spans, and read only where they provably equal them."""
