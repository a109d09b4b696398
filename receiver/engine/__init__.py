"""Engines: implementations of the Store contract for chDB and a ClickHouse server, and the schema."""
