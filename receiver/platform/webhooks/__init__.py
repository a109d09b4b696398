"""Webhooks of the hosting platform: stored durably by an intake, applied once by the store process."""
