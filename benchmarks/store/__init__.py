"""Storage benchmarks: our table and the exporter's, one engine, the same spans. `make bench-store`."""
