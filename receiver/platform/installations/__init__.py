"""Installations of the platform's integration, their tokens, and the names of projects: DATA/platform/."""
