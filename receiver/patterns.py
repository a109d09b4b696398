"""Regular expressions of the settings, searched in texts of senders by the core, in linear time.

Apart from `receiver/transcode.py`, because that module reads the settings, whose checks need patterns.
"""

from __future__ import annotations

from collections.abc import Sequence

from receiver import _transcode  # noqa: TID251 - see above
from receiver.errors import OperatorError


class PatternSet:
    """Patterns that are searched together. Upper and lower case are equal."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raise `OperatorError` for a pattern that is not valid, or that matches the empty text."""
        try:
            self._set = _transcode.PatternSet(patterns)
        except _transcode.CoreError as error:
            raise OperatorError(str(error)) from error

    def is_found_in(self, text: str) -> bool:
        """Return whether a part of the text matches a pattern."""
        return self._set.is_match(text)
