"""Endpoint of the Model Context Protocol (MCP): questions about stored spans as tools of language models."""
