"""The storage side: our table and the exporter's, one engine, the same spans. `make bench-store`."""
