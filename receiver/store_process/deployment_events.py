"""Fetching of deployment events in the store process: for open pages, and for live deployments."""

from __future__ import annotations

from collections.abc import Callable

from receiver.deployment_events.fetcher import EventFetcher
from receiver.deployment_events.follower import Follower
from receiver.engine.store import Store
from receiver.settings import Platform
from receiver.ui.facts import ReceiverFacts


def follower_for(store: Store, facts: ReceiverFacts, has_tables: Callable[[], bool]) -> Follower:
    """Return the follower of live deployments, and let the pages fetch through it."""

    def platform() -> Platform:
        return facts.settings.platform

    fetcher = EventFetcher(store, platform, has_tables)
    facts.refresh_events = fetcher.refresh
    return Follower(store, fetcher, platform)
