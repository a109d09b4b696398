"""Texts of others, made safe to print in a log, an error message or a terminal.

Never: imports a library, because every command imports this module.
"""

from __future__ import annotations

import re
from typing import Final

FIELD_CHARS_MAX: Final = 2_048
HIDDEN: Final = "(hidden)"
_URL_PASSWORD: Final = re.compile(r"(://[^/\s:@]*):[^/\s@]*@")


def harmless_text(text: str) -> str:
    """Return the text, truncated, with passwords hidden and control and direction characters escaped."""
    # Truncated first, so that the search for passwords takes limited time.
    shown = text if len(text) <= FIELD_CHARS_MAX else f"{text[:FIELD_CHARS_MAX]}… ({len(text)} characters)"
    shown = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", shown)
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)
