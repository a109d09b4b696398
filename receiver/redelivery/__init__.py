"""Deduplication window: digests of recently accepted deliveries, and the decisions about duplicates."""
