"""Benchmarks: this receiver and its peers receive the same bytes and write to the same sink. `make bench`."""
