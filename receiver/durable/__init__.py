"""Durable files: writing, syncing, renaming and deleting, behind an interface for fault injection."""
