"""Comparison of deployments and of selections of spans, with the statistics behind it."""
