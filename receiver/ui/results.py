"""Results of changes, which a page shows after the redirect that follows the form.

They are kept in memory under a random key: a text in the URL could come from a link of another site.
"""

from __future__ import annotations

import secrets

RESULTS_MAX = 64
"""Number of results that are kept; the oldest is forgotten first."""


class Results:
    """The last results by their keys."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def keep(self, text: str) -> str:
        """Keep a result and return its key."""
        key = secrets.token_urlsafe(9)
        self._texts[key] = text
        if len(self._texts) > RESULTS_MAX:
            del self._texts[next(iter(self._texts))]
        return key

    def text_of(self, key: str) -> str:
        """Return the result with this key; an empty text if it is unknown or forgotten."""
        return self._texts.get(key, "")
