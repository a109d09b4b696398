"""Ledger: per drain, project and hour of receipt, the number of spans with each outcome."""
