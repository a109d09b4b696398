"""Fixtures of the platform's pages: those of the console's pages."""

from __future__ import annotations

from tests.console.ui.conftest import (
    client,
    facts,
    platform,
    shop_store,
    site,
    start,
    start_site,
    whole_pages,
)

__all__ = ["client", "facts", "platform", "shop_store", "site", "start", "start_site", "whole_pages"]
