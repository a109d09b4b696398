"""Messages for TOML syntax errors, without the file's text, which may contain a secret."""

from __future__ import annotations

import re

_PLACE = re.compile(r"at line \d+, column \d+|at end of document")
_KINDS = (
    (
        r"Cannot overwrite|Duplicate inline|Cannot declare|Cannot mutate",
        "a key or table is defined twice; expected it once, or [[…]] for a list of tables",
    ),
    (r"Expected '=' after a key", "a key has no value; expected KEY = VALUE, a [table] or a # comment"),
    (
        r"Invalid statement",
        "a line does not start with a key; expected KEY = VALUE, a [table] or a # comment",
    ),
    (
        r"Expected newline or end",
        "unexpected text after a value; expected one KEY = VALUE per line, with texts in quotes",
    ),
    (r"Invalid value", "invalid value; expected a text in quotes, a number, true, false or a list of these"),
    (r"Unclosed array", "unclosed list; expected ']'"),
    (r"Unterminated|Expected [\"']|Illegal character '\\n'", "unclosed text; expected the closing quote"),
    (r"Unescaped", "a text contains a single backslash; expected two, or single quotes around the text"),
    (r"Expected '\]'|Expected \"\]\"", "unclosed table name; expected ']'"),
    (r"Illegal character|Found invalid character", "a control character; expected plain text"),
    (r"Exceeds the limit", "a number has thousands of digits; expected a number that a setting accepts"),
    (r"recursion", "tables or lists are nested too deeply; expected a setting's value"),
    (r"codec can't decode", "the file is not UTF-8; expected a text file"),
)
"""Pattern of the parser's message → our message."""


def without_text(reason: Exception) -> str:
    """Return what is wrong, and where."""
    text = str(reason)
    place = _PLACE.search(text)
    message = next((message for pattern, message in _KINDS if re.search(pattern, text)), "invalid TOML")
    return f"{place.group()}: {message}" if place else message
