"""Deployment events: fetched from the platform's API, and stored once."""
