"""Backup and restore of the embedded store and of the files that belong to it."""
