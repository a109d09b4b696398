"""Message templates: error messages with their numbers, ids, paths and quoted texts replaced by placeholders.

Messages that differ only there have the same cause, so they are counted together. The rules run in order, in
the engine and in the Python of the tests alike, so they use only syntax that RE2 and `re` share, and ASCII
classes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from receiver.engine.sql_text import Sql, compose

CHARACTERS_MAX = 1_000
"""Characters of a message that count; the rest, often a stack trace, is ignored."""


class _Rule(NamedTuple):
    pattern: str
    replacement: str


# RE2 has no look-ahead for "contains a digit", so there is an alternative for each place of the first digit.
_LETTERS_THEN_DIGIT = "|".join(f"[A-Za-z_]{{{count}}}[0-9][0-9A-Za-z_]{{{7 - count},}}" for count in range(8))
# Quoted texts and addresses come first: the later rules would cut them into pieces.
RULES: Final = (
    _Rule('"[^"]*"', "<text>"),
    # an apostrophe within a word does not begin a quotation
    _Rule("(^|[^0-9A-Za-z_])'[^']*'", r"\1<text>"),
    _Rule("`[^`]*`", "<text>"),
    _Rule("[a-z][a-z0-9+]*://[^ \t\r\n\"'<>]+", "<url>"),
    _Rule("[0-9A-Za-z._%+-]+@[0-9A-Za-z-]+[.][0-9A-Za-z.-]+", "<email>"),
    _Rule("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    _Rule(
        "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?",
        "<time>",
    ),
    _Rule("(^|[ \t\r\n(\\[=:,])/[^ \t\r\n,;)\\]]+", r"\1<path>"),
    _Rule("[A-Za-z]:\\\\[^ \t\r\n,;)\\]]+", "<path>"),
    _Rule(r"\b(0[xX][0-9a-fA-F]+|[0-9a-fA-F]{16,})\b", "<hex>"),
    _Rule(r"\b[0-9]+([.:,-][0-9]+)*\b", "<number>"),
    # a word of eight characters or more with a digit
    _Rule(rf"\b({_LETTERS_THEN_DIGIT}|[A-Za-z_]{{8,}}[0-9][0-9A-Za-z_]*)\b", "<id>"),
    _Rule("[0-9]+([.][0-9]+)*", "<number>"),
)


def template_sql(message: Sql) -> Sql:
    """Return the expression for the template of the message that an expression returns."""
    # With this type, the engine evaluates the rules once for each distinct message of a block.
    shortened = "substringUTF8(toLowCardinality({message}), 1, {characters_max})"
    expression = compose(shortened, message=message, characters_max=CHARACTERS_MAX)
    rule = "replaceRegexpAll({text}, {pattern_{number}:String}, {replacement_{number}:String})"
    for number in range(len(RULES)):
        expression = compose(rule, text=expression, number=number)
    return compose("toString({text})", text=expression)


PLACEHOLDERS: Final = frozenset(rule.replacement.removeprefix(r"\1") for rule in RULES)
"""What a template has in place of the texts that differ."""
TEMPLATE_PARAMETERS: Final = {
    name: text
    for number, rule in enumerate(RULES)
    for name, text in ((f"pattern_{number}", rule.pattern), (f"replacement_{number}", rule.replacement))
}
"""Parameters of `template_sql`."""
