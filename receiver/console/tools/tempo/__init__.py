"""Grafana Tempo's HTTP API over the stored spans, for Grafana."""
