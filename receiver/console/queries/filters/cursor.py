"""Position of a parser in the text of a filter. Counts comparisons and checks the nesting."""

from __future__ import annotations

import re

from receiver.console.queries.filters.filter_values import DEPTH_MAX, TERMS_MAX, Place, check_text

_SPACE = re.compile(r"\s*")


class Cursor:
    """Place of the next character of a filter."""

    def __init__(self, text: str) -> None:
        check_text(text)
        self.text = text
        self.at = 0
        self._terms = 0

    @property
    def place(self) -> Place:
        """Place of the next character, for messages."""
        return Place(column=self.at + 1)

    def at_end(self) -> bool:
        """Skip white space; return whether the text ends here."""
        self.take(_SPACE)
        return self.at == len(self.text)

    def take(self, pattern: re.Pattern[str]) -> str:
        """Return the text that matches here, and move past it; empty if nothing matches."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def next_is(self, *texts: str) -> bool:
        """Return whether one of these texts follows, after white space."""
        return not self.at_end() and self.text.startswith(texts, self.at)

    def skip(self, text: str) -> bool:
        """Move past this text if it comes next. Returns whether it does."""
        if not self.next_is(text):
            return False
        self.at += len(text)
        return True

    def expect(self, text: str, problem: str) -> None:
        """Move past this text. Raises if it does not come next."""
        if not self.skip(text):
            raise self.place.invalid(problem)

    def count_term(self) -> None:
        """Count a comparison. Raises over the limit."""
        # Skips white space, so that the message names the column of the comparison.
        self.at_end()
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise self.place.invalid(f"the filter has over {TERMS_MAX} comparisons")

    def check_depth(self, depth: int) -> None:
        """Raise if a parenthesis or a negation at this depth is too deep."""
        if depth > DEPTH_MAX:
            raise self.place.invalid(f"the filter nests deeper than {DEPTH_MAX} levels")
