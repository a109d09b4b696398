"""Fetching of deployment events in the store process: for open pages, and for live deployments."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from receiver.deployment_events.fetcher import EventFetcher
from receiver.deployment_events.follower import Follower
from receiver.engine.store import Store
from receiver.errors import OperatorError
from receiver.installations.installations import Installations
from receiver.settings import Platform
from receiver.ui.facts import ReceiverFacts


def follower_for(store: Store, facts: ReceiverFacts, has_tables: Callable[[], bool]) -> Follower:
    """Return the follower of live deployments, and let the pages fetch through it."""

    def platform() -> Platform:
        settings = facts.settings.platform
        return settings if settings.token else _of_installation(settings, facts.platform.installations)

    fetcher = EventFetcher(store, platform, has_tables)
    facts.refresh_events = fetcher.refresh
    return Follower(store, fetcher, platform)


def _of_installation(settings: Platform, installations: Installations) -> Platform:
    """Return the settings with token and team of the newest active installation, if there is one."""
    for each in installations.all():
        try:
            token = installations.token(each.id) if each.state == "active" else ""
        # The page of the platform shows a token that cannot be read.
        except (OSError, OperatorError):
            continue
        if token:
            return msgspec.structs.replace(settings, token=token, team=each.team_id)
    return settings
