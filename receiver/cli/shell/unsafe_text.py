"""Escapes for foreign text that is printed with its line feeds: a terminal would obey control characters."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control and direction characters, except tab and line feed."""


def without_controls(text: str) -> str:
    """Return the text with control and direction characters escaped; tabs and line feeds stay."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
