"""ClickHouse's HTTP interface over the embedded store, read-only, for the clients and tools that speak it."""
