"""Width of a text in a terminal: a wide character has two columns, a combining mark none."""

from __future__ import annotations

import unicodedata


def text_width(text: str) -> int:
    """Return the width of a text that has no control characters."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut_to_width(text: str, columns: int) -> str:
    """Return the text, its end replaced by `…` if it is wider."""
    if text_width(text) <= columns:
        return text
    left, count = columns - 1, 0
    for char in text:
        left -= _width(char)
        if left < 0:
            break
        count += 1
    return text[:count] + "…"


def padded(text: str, columns: int, *, is_number: bool = False) -> str:
    """Return the text with spaces after it, or before a number, up to the width."""
    spaces = " " * (columns - text_width(text))
    return spaces + text if is_number else text + spaces


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
