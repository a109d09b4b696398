"""Ledger: per drain, project and hour of receipt, how many spans ended how."""
