"""Operators' queries. They read the store, never the journal."""
