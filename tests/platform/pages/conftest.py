"""Fixtures of the platform's pages: those of the console's pages."""

from __future__ import annotations

from tests.console.ui.conftest import client, platform

__all__ = ["client", "platform"]
