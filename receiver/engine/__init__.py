"""Engines behind one Store contract: embedded chDB and a ClickHouse server; the schema."""
