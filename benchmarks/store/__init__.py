"""The storage side: our tables and the OpenTelemetry exporter's, one engine, the same spans. `make bench-store`."""
