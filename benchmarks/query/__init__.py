"""Query benchmarks: every question on our table, and in SQL on the exporter's. `make bench-query`."""
