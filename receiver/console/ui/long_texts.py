"""Long texts of senders, cut so that a page stays small; the API and exports have them in full."""

from __future__ import annotations

from typing import Any

from receiver.console.ui.numbers import count

TEXT_CHARS_MAX = 4_096
"""Longest text of a span on a page. Filters have the same limit, so no link needs a longer text."""


def cut(text: str) -> str:
    """Return a text; a long text as its beginning and its length."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}… ({count(len(text))} characters)"


def with_cut_texts(value: Any) -> Any:  # noqa: ANN401 - any value of an answer
    """Return a value of a response with every text in it cut."""
    match value:
        case str():
            return cut(value)
        case dict():
            return {cut(key): with_cut_texts(each) for key, each in value.items()}
        case list():
            return [with_cut_texts(each) for each in value]
        case _:
            return value
