"""Regular expressions for functions that find all matches: those whose cost is in proportion to the text.

The engine searches from the end of each match to the next one, and looks for a cancellation only after a
block of rows. A search may read far beyond the end of its match: `a(.*b)?` reads the rest of the text for
each `a`. Such a pattern repeats a part without limit and may match without it. So a part that is repeated
without limit must be

    outside of repeated and optional groups    not `(.*b)?`, `([a-z]+[.])*`
    at the end of its alternative              not `.*b|a`; `[0-9]+|[a-f]+` is accepted
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PATTERN_CHARS_MAX: Final = 500

_TOKEN: Final = re.compile(
    r"""
      (?P<flags>\(\?[a-zA-Z-]+\))
    | (?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?)
    | (?P<close>\))
    | (?P<bar>\|)
    | (?P<unlimited>(?:[*+]|\{[0-9]+,\})\??)
    | (?P<limited>(?:\?|\{[0-9]+(?:,[0-9]+)?\})\??)
    | (?P<atom>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\\[pPx]\{[^}]*\}|\\[^Q]|[^\\(\[])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Group:
    """A group of the pattern up to the current token; the outermost group is the whole pattern."""

    has_bar: bool = False
    repeats: bool = False
    """Whether a part is repeated without limit."""
    repeats_here: bool = False
    """Whether such a part is in the current alternative."""
    is_followed: bool = False
    """Whether such a part is followed by another one in its alternative."""
    last_repeats: bool = False
    """Whether the last part is a group with such a part."""

    def add(self, part: _Group | None = None) -> None:
        """Add a character, or a group."""
        self.is_followed |= self.repeats_here or (part is not None and part.is_followed)
        self.last_repeats = part is not None and part.repeats
        self.repeats |= self.last_repeats
        self.repeats_here |= self.last_repeats

    @property
    def is_bounded(self) -> bool:
        """Return whether the alternatives can be told apart without reading far ahead."""
        return not (self.has_bar and self.is_followed)


def is_linear(pattern: str) -> bool:
    """Return whether all matches are found in time proportional to the text. False for unknown syntax."""
    groups, position = [_Group()], 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None or not _accepts(groups, str(match.lastgroup)):
            return False
        position = match.end()
    return len(pattern) <= PATTERN_CHARS_MAX and len(groups) == 1 and groups[0].is_bounded


def _accepts(groups: list[_Group], kind: str) -> bool:
    """Add a token to the innermost group. Return False if the pattern is refused."""
    group = groups[-1]
    if kind == "open":
        groups.append(_Group())
    elif kind == "close":
        groups.pop()
        if not groups or not group.is_bounded:
            return False
        groups[-1].add(group)
    elif kind == "bar":
        group.has_bar, group.repeats_here = True, False
    elif kind == "atom":
        group.add()
    elif kind in ("limited", "unlimited"):
        if group.last_repeats:
            return False
        is_unlimited = kind == "unlimited"
        group.repeats |= is_unlimited
        group.repeats_here |= is_unlimited
    return True
