"""Redaction: replaces secrets in what is sent to a language model.

Invariant: a text in which a secret is found is replaced as a whole, so no part of it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from receiver.patterns import PatternSet
from receiver.settings import Explain

REDACTED: Final = "[redacted]"
SEARCHED_CHARACTERS_MAX: Final = 8_192
"""Part of a text that is searched: far more than `TEXT_CHARACTERS_MAX`, after which a text is cut."""


class Redactor:
    """The rules of the settings."""

    def __init__(self, settings: Explain) -> None:
        self._keys = PatternSet(settings.redact_keys)
        self._patterns = PatternSet(settings.redact_patterns)

    def text(self, text: str) -> str:
        """Return the text, or `REDACTED`."""
        return REDACTED if self._patterns.is_found_in(text[:SEARCHED_CHARACTERS_MAX]) else text

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a value of a row with its secrets replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self._member(value, key) for key in value}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value

    def _member(self, members: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - any JSON
        # Attribute shifts have the key of an attribute and its value in two members.
        name = members.get("key", "") if key == "value" else key
        if isinstance(name, str) and self._keys.is_found_in(name[:SEARCHED_CHARACTERS_MAX]):
            return REDACTED
        return self.value(members[key])
