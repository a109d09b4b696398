"""Shared code of the commands: tables, widths, screen, completion, and the client of the API."""
