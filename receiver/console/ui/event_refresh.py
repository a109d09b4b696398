"""Fetch of deployment events for an open page, as the platform's side implements it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple


class FetchState(NamedTuple):
    """State of the fetch of a deployment's events."""

    status: Literal["off", "fetched", "running", "failed"]
    """`off`: there is nothing to fetch from."""
    reason: str = ""
    """Reason that the events could not be fetched, or are not fetched."""


RefreshEvents = Callable[[str, float, Sequence[str]], Awaitable[FetchState]]
"""Fetches the events of a deployment, for at most so many seconds and a user of these projects."""
NOT_CONFIGURED: Final = FetchState(
    "off",
    "set platform.base_url, and platform.token or install the integration: see the page /platform",
)


async def fetch_nothing(_deployment: str, _wait_s: float, _projects: Sequence[str] = ()) -> FetchState:
    """Return at once: without the platform there is nothing to fetch from."""
    return NOT_CONFIGURED
