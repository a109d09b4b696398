"""trace-drain-receiver: OTLP/HTTP traces, on disk before the 200, stored in ClickHouse exactly once."""

__version__ = "0.2.0"
