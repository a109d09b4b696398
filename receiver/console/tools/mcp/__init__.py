"""Endpoint of the Model Context Protocol (MCP): queries over stored spans as tools of language models."""
