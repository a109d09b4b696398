"""Text without a comparison in a filter, such as a pasted error message: its words and its sections.

card declined                     two words
user not found                    three words: only upper case joins texts, and only by AND and OR
-retry                            a word that the span must not have
TypeError: x is not a function …  more than 8 words: two sections, each searched as one text
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from receiver.console.queries.filters.filter import ALIASES, INTRINSICS
from receiver.console.queries.filters.filter_values import CHARACTERS_MAX

_PLAIN_WORD = re.compile(r"(-(?=[^\s()\d-]))?([^\s()]+)")
"""A word of a text without a comparison, and the minus before it."""
_PUNCTUATION: Final = "-\"'`.,:;!?\u2018\u2019\u201c\u201d\u2026"
"""Characters around a word that are not searched: they separate the type of an error from its message."""
_KEYWORDS: Final = {"AND", "OR", "NOT", "EXISTS"}
NAMES: Final = {*INTRINSICS, *ALIASES}
"""Names of fields: alone, they are flags or incomplete comparisons and not texts."""
_COMPARED = re.compile(
    r'[=<>~"{}]|(?<![\w.:/-])(?:(?:AND|OR)(?![\w.:/-])'
    rf"|(?:{'|'.join(NAMES)})\s++(?i:exists)(?![\w.:/-]))"
    # Possessive, and only from the beginning of a word: its time must not grow faster than the text.
    r"|(?<![^\s()])(?=[^\s()]*\.)[^\s()]++\s++(?i:exists)(?![\w.:/-])"
)
"""A sign that the text has a comparison, or words that join texts."""
_WORDS_MAX: Final = 8
"""A longer text without a comparison is searched by its sections: each costs a pass over several columns."""
_ID_OF: Final = {
    "trace": re.compile(r"[0-9a-fA-F]{32}"),
    "span": re.compile(r"[0-9a-fA-F]{16}"),
    "deployment": re.compile(r"dpl_\w+"),
}
"""Field → texts that are taken for an id in it."""


def quoted_word(word: str) -> str:
    """Return a word without quotation marks as a quoted text that means the same."""
    backslashes = len(word) - len(word.rstrip("\\"))
    # A single backslash at the end would escape the quotation mark.
    return '"' + word + "\\" * (backslashes % 2) + '"'


class PlainPart(NamedTuple):
    """A part of a text without a comparison: a word, or words of which any text may stand between two."""

    text: str
    start: int
    is_negated: bool = False

    @property
    def is_kept(self) -> bool:
        """Return whether the part is a flag or an id, which mean the same beside a comparison."""
        return INTRINSICS.get(self.text) == "flag" or bool(id_field(self.text))

    @property
    def value(self) -> str:
        """Return the part in quotation marks."""
        return quoted_word(self.text)


def plain_parts(text: str) -> list[PlainPart]:
    """Return the words of a text without a comparison, or its sections, which end with a colon."""
    found = list(_PLAIN_WORD.finditer(text))
    if len(found) <= _WORDS_MAX:
        parts = [PlainPart(word[2].strip(_PUNCTUATION), word.start(2), bool(word[1])) for word in found]
        return [part for part in parts if part.text]
    sections = [PlainPart("", found[0].start())]
    for word in found:
        stripped = word[0].strip(_PUNCTUATION)
        joined = "*".join(filter(None, (sections[-1].text, stripped)))
        sections[-1] = sections[-1]._replace(text=joined)
        if word[0].endswith(":") and len(sections) < _WORDS_MAX:
            sections.append(PlainPart("", word.end()))
    return [section for section in sections if section.text]


def id_field(text: str) -> str:
    """Return the field whose id the text is taken for: trace, span or deployment; empty if it is no id."""
    return next((field for field, pattern in _ID_OF.items() if pattern.fullmatch(text)), "")


def is_plain(text: str) -> bool:
    """Return whether the text has words to search for, and no comparison."""
    if len(text) > CHARACTERS_MAX or _COMPARED.search(text):
        return False
    words = [word[2].strip(_PUNCTUATION) for word in _PLAIN_WORD.finditer(text)]
    return any(word and word not in NAMES and word.upper() not in _KEYWORDS for word in words)
