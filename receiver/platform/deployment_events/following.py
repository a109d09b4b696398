"""Fetching of deployment events in the store process: for open pages, and for live deployments."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from receiver.engine.store import Store
from receiver.errors import OperatorError
from receiver.platform.deployment_events.fetcher import EventFetcher
from receiver.platform.deployment_events.follower import Follower
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.settings import Platform


def follower_for(
    store: Store,
    configured: Callable[[], Platform],
    records: PlatformRecords,
    has_tables: Callable[[], bool],
    on_disabled: Callable[[], None],
) -> tuple[EventFetcher, Follower]:
    """Return the fetcher for open pages, and the follower of live deployments, which shares it.

    `on_disabled`: called after each answer that the configuration of the integration is disabled.
    """

    def platform() -> Platform:
        settings = configured()
        return settings if settings.token else _of_installation(settings, records.installations)

    fetcher = EventFetcher(store, platform, has_tables, records.deployments.project)
    fetcher.on_disabled = on_disabled
    return fetcher, Follower(store, fetcher, platform)


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
