"""Interfaces of other programs: Jaeger, Grafana Tempo, ClickHouse clients, and language models (MCP)."""
