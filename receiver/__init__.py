"""trace-drain-receiver: OTLP traces in over HTTPS, on disk before the 200, in ClickHouse exactly once."""

__version__ = "0.1.0"
