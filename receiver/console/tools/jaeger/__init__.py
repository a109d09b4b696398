"""Jaeger's HTTP API over the stored spans, for Jaeger UI and Grafana."""
