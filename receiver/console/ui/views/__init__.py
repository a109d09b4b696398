"""Saved views: a name, and the path and parameters of a page."""
