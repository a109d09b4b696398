"""Results of changes, which a page shows after the redirect that follows the form.

They are in memory under a random key, because a text in the URL could come from a link of another site.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

RESULTS_MAX = 64
"""Maximum number of results; the oldest is evicted first."""


class Result(NamedTuple):
    """Outcome of a change."""

    text: str = ""
    link: str = ""
    """URL at which the user can continue; empty if there is none."""


class Results:
    """The last results by their keys."""

    def __init__(self) -> None:
        self._results: dict[str, Result] = {}

    def keep(self, text: str, link: str = "") -> str:
        """Keep a result and return its key."""
        key = secrets.token_urlsafe(9)
        self._results[key] = Result(text, link)
        if len(self._results) > RESULTS_MAX:
            del self._results[next(iter(self._results))]
        return key

    def result_of(self, key: str) -> Result:
        """Return the result with this key; an empty result if it is unknown or was evicted."""
        return self._results.get(key, Result())
