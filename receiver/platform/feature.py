"""The hosting platform's side in the store process: webhooks, installations, events, pages and routes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from receiver.console.api.route import Routes
from receiver.console.api.source import ApiSourceFor
from receiver.console.extension import Extension
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.page import Page
from receiver.console.ui.site import Site
from receiver.feature import StoreParts
from receiver.metrics import Metrics
from receiver.platform.api import PlatformRoutes
from receiver.platform.deployment_events.follower import follower_for
from receiver.platform.explain.explainer import Explainer
from receiver.platform.explain.routes import ExplainRoutes
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.platform.pages import explanation, platform
from receiver.platform.pages.install_routes import InstallRoutes
from receiver.platform.work import PlatformWork

TEMPLATES = ("receiver.platform.pages",)


class PlatformSide:
    """Implements `receiver.feature.Feature`."""

    def __init__(self, parts: StoreParts) -> None:
        """Read the records of the platform."""
        self._work = PlatformWork(parts.settings)
        self._fetcher, self._follower = follower_for(
            parts.store,
            lambda: parts.settings.platform,
            self._work.records,
            parts.has_tables,
            self._work.request_probe,
        )

    @property
    def extension(self) -> Extension:
        return replace(extension_of(self._work.records), refresh_events=self._fetcher.refresh)

    async def start(self) -> None:
        """Apply webhooks, check installations, and follow live deployments."""
        self._work.start()
        self._follower.start()

    def reload(self) -> None:
        """Do nothing: each call of the platform reads the settings."""

    def report(self, metrics: Metrics) -> Mapping[str, str]:
        self._work.report(metrics)
        return {}

    async def stop(self) -> None:
        """Stop the threads and the followed streams. The next start repeats unfinished work."""
        await self._follower.close()
        await asyncio.to_thread(self._work.stop)


def extension_of(records: PlatformRecords) -> Extension:
    return Extension(
        pages_of(records), TEMPLATES, partial(_routes, records), project_name=records.projects.name
    )


def pages_of(records: PlatformRecords) -> tuple[Page, ...]:
    return (
        Page(
            "platform",
            "/platform",
            "Platform",
            "Is the integration installed?",
            partial(platform.build, records),
            "p",
            is_live=True,
            parameters=("result",),
        ),
        explanation.PAGE,
    )


def _routes(
    records: PlatformRecords, site: Site, source_for: ApiSourceFor, facts: ReceiverFacts
) -> Iterable[Routes]:
    explainer = Explainer(lambda: facts.settings.platform)
    platform_routes = PlatformRoutes(
        records.installations,
        records.projects,
        lambda: facts.settings.platform.webhook.project_retention_days,
        facts.pool,
    )
    return (
        explanation.ExplainForm(site, explainer),
        ExplainRoutes(source_for, explainer),
        InstallRoutes(facts, records),
        platform_routes,
        platform.ProjectForms(platform_routes, facts.results),
    )
