"""Operators' HTTP API over the query package."""
