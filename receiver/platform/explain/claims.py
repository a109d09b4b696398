"""Sentences of an answer, and the spans that they name as `[span:ID]`.

Invariant: the text of a sentence is data for the reader's page or terminal, never markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

SENTENCE_CHARACTERS_MAX: Final = 2_000
"""Length at which a sentence without an end is split; the rest counts as another sentence."""
_REFERENCE: Final = re.compile(r"\[span:([^\[\]\n]{0,64})\]")
_END: Final = re.compile(
    r"\n+|[.!?]['\")*_]{0,3}(?:[ \t]{0,4}\[span:[^\[\]\n]{0,64}\]){0,16}[ \t]+(?=[^\s\[])"
)
"""End of a sentence, with the references that follow its full stop. It must be followed by another word."""


class Part(NamedTuple):
    """Text, or a span that the text names."""

    text: str
    is_span: bool = False
    """Whether the text is the id of a span."""
    is_known: bool = False
    """Whether the trace has this span."""


class Sentence(NamedTuple):
    """A sentence with its white space."""

    parts: tuple[Part, ...]

    @property
    def is_refuted(self) -> bool:
        """Return whether it names a span that the trace does not have."""
        return any(part.is_span and not part.is_known for part in self.parts)


class Sentences:
    """Splits an answer that arrives in fragments."""

    def __init__(self, span_ids: Collection[str]) -> None:
        self._span_ids = span_ids
        self._rest = ""

    def add(self, fragment: str) -> Iterator[Sentence]:
        """Yield the sentences that are complete."""
        self._rest += fragment
        while (end := self._end()) is not None:
            complete, self._rest = self._rest[:end], self._rest[end:]
            yield self._sentence(complete)

    def finish(self) -> Iterator[Sentence]:
        """Yield the last sentence."""
        if self._rest:
            complete, self._rest = self._rest, ""
            yield self._sentence(complete)

    def _end(self) -> int | None:
        match = _END.search(self._rest)
        if match is not None:
            return match.end()
        return SENTENCE_CHARACTERS_MAX if len(self._rest) > SENTENCE_CHARACTERS_MAX else None

    def _sentence(self, text: str) -> Sentence:
        parts, at = [], 0
        for match in _REFERENCE.finditer(text):
            if match.start() > at:
                parts.append(Part(text[at : match.start()]))
            span_id = match[1].strip().lower()
            parts.append(Part(span_id, is_span=True, is_known=span_id in self._span_ids))
            at = match.end()
        if at < len(text):
            parts.append(Part(text[at:]))
        return Sentence(tuple(parts))
