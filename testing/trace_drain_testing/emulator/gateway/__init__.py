"""Emulated gateway to language models."""
