"""Redaction: replaces secrets in what is sent to a language model, and names the rule that found each.

Invariant: a text in which a secret is found is replaced as a whole, so no part of it is sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from receiver.patterns import PatternSet
from receiver.platform.explain.secrets import KEY_RULE, is_secret_value, rule_of_text
from receiver.settings import Explain

SEARCHED_CHARACTERS_MAX: Final = 8_192
"""Part of a text that is searched: far more than `TEXT_CHARACTERS_MAX`, after which a text is cut."""
_MARK: Final = re.compile(r"\[redacted: ([a-z0-9_-]{1,40})\]")


def mark(rule: str) -> str:
    """Return the text that replaces a secret which the rule found."""
    return f"[redacted: {rule}]"


def counted_marks(text: str) -> dict[str, int]:
    """Return the number of replaced texts for each rule, the most frequent rule first."""
    return dict(Counter(_MARK.findall(text)).most_common())


class Redactor:
    """The rules of the receiver, and those of the settings."""

    def __init__(self, settings: Explain) -> None:
        self._keys = PatternSet(settings.redact_keys)
        self._patterns = PatternSet(settings.redact_patterns)

    def text(self, text: str) -> str:
        """Return the text, or a mark if it has a secret."""
        searched = text[:SEARCHED_CHARACTERS_MAX]
        if self._patterns.is_found_in(searched):
            return mark("redact_patterns")
        rule = rule_of_text(searched)
        return mark(rule) if rule else text

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
        if isinstance(name, str):
            if self._keys.is_found_in(name[:SEARCHED_CHARACTERS_MAX]):
                return mark("redact_keys")
            if is_secret_value(name, members[key]):
                return mark(KEY_RULE)
        return self.value(members[key])
