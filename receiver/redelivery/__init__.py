"""Deduplication window: digests of deliveries accepted lately, and the decisions about duplicates."""
