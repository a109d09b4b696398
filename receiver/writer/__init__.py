"""Background writer: journal segment → INSERT → count → ledger → delete."""
