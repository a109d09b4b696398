"""What is wrong with a TOML file, told without its text, which may hold a secret."""

from __future__ import annotations

import re

_PLACE = re.compile(r"at line \d+, column \d+|at end of document")
_KINDS = (
    (
        r"Cannot overwrite|Duplicate inline|Cannot declare|Cannot mutate",
        "a key or table is said twice; expected it once, or [[…]] for a list of tables",
    ),
    (r"Expected '=' after a key", "a line is no KEY = VALUE; expected one, a [table] or a # comment"),
    (r"Invalid statement", "a line begins with no key; expected KEY = VALUE, a [table] or a # comment"),
    (
        r"Expected newline or end",
        "something follows a value; expected one KEY = VALUE a line, texts in quotes",
    ),
    (r"Invalid value", "a value is none; expected a text in quotes, a number, true, false or a list of them"),
    (r"Unclosed array", "a list is not closed; expected ']'"),
    (r"Unterminated|Expected [\"']|Illegal character '\\n'", "a text is not closed; expected its quote"),
    (r"Unescaped", "a text holds a lone backslash; expected two, or single quotes around the text"),
    (r"Expected '\]'|Expected \"\]\"", "a table's name is not closed; expected ']'"),
    (r"Illegal character|Found invalid character", "a control character; expected plain text"),
    (r"Exceeds the limit", "a number of thousands of digits; expected one that a setting takes"),
    (r"recursion", "tables or lists nested too deep; expected a setting's value"),
    (r"codec can't decode", "no UTF-8; expected a text file"),
)
"""What the reader says → what we say."""


def without_text(reason: Exception) -> str:
    """Say what is wrong, and where."""
    text = str(reason)
    place = _PLACE.search(text)
    kind = next((told for pattern, told in _KINDS if re.search(pattern, text)), "expected another form")
    return f"{place.group()}: {kind}" if place else kind
