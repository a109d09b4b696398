"""Fetch of deployment events for an open page, as the platform's side implements it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple


class FetchState(NamedTuple):
    """State of the fetch of a deployment's events."""

    status: Literal["off", "fetched", "running", "failed"]
    """`off`: no platform is configured."""
    reason: str = ""
    """Why the events could not be fetched, or are not fetched."""


RefreshEvents = Callable[[str, float, Sequence[str]], Awaitable[FetchState]]
"""Fetches the events of a deployment: its id, the maximum number of seconds, and the projects of the user."""
NOT_CONFIGURED: Final = FetchState(
    "off", "set platform.base_url, and platform.token or install the integration: see the page /platform"
)


async def fetch_nothing(_deployment: str, _wait_s: float, _projects: Sequence[str] = ()) -> FetchState:
    """Return at once: without the platform there are no events to fetch."""
    return NOT_CONFIGURED
