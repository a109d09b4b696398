"""Copy of the embedded store to a ClickHouse server, while the receiver stores further spans."""
