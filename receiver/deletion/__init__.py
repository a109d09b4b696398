"""Deletion of spans before they expire, counted by the ledger."""
