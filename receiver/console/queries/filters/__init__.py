"""Filters: the tree, the languages that are parsed to it, and its compilation to SQL."""
