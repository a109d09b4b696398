"""Templates of error messages in plain Python, which the engine's templates have to equal."""

from __future__ import annotations

import re

from receiver.console.queries.message_template import CHARACTERS_MAX, RULES

# ASCII, because RE2 knows only ASCII words, as in `\b`.
COMPILED = [(re.compile(rule.pattern, re.ASCII), rule.replacement) for rule in RULES]


def template_of(message: str) -> str:
    template = message[:CHARACTERS_MAX]
    for pattern, replacement in COMPILED:
        template = pattern.sub(replacement, template)
    return template
