"""Check of the patterns for secrets that are never sent to a language model."""

from __future__ import annotations

from collections.abc import Iterator

from receiver.errors import OperatorError
from receiver.patterns import PatternSet
from receiver.settings import Settings


def redaction(settings: Settings) -> Iterator[str]:
    """Yield a problem for each pattern that cannot be searched."""
    for key in ("redact_keys", "redact_patterns"):
        for index, pattern in enumerate(getattr(settings.platform.explain, key)):
            try:
                PatternSet([pattern])
            except OperatorError as error:
                yield f"platform.explain.{key}[{index}] {error}"
