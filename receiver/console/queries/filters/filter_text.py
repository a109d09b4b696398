r"""Filter as a line of text: `service=web status=error duration>250ms http.route="/api/*" -name=~"^health"`.

    traces     = filter | sets
    sets       = all_sets { ( "||" | "OR" ) all_sets }
    all_sets   = set { [ "&&" | "AND" ] set }
    set        = ( "-" | "NOT" ) set | "(" sets ")" | "{" [ filter ] "}"

    filter     = all { "OR" all }
    all        = part { [ "AND" ] part }
    part       = ( "-" | "NOT" ) part | "(" filter ")" | field "exists" | flag | field operator value | text
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "=~" | "!~"

A name with a dot is an attribute, with or without a scope; any other name has to be a field of every span.
In a value `*` stands for any text and `\*` for a star. Messages give the column and never repeat the text.

A text without an operator is searched in the texts of the span. Without any comparison, all words are such
texts, also `not` and `or` in lower case, and many words are one text, so that an error message can be pasted.

Braces make a condition on a single span a condition on the trace. Inside them, syntax of TraceQL is an error:
some texts would be valid in both languages otherwise, and mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from receiver.console.queries.filters.cursor import Cursor
from receiver.console.queries.filters.filter import (
    ALIASES,
    INTRINSICS,
    And,
    Attribute,
    Comparison,
    Exists,
    Filter,
    HasSpan,
    Intrinsic,
    Not,
    Operator,
    Or,
    TraceAnd,
    TraceFilter,
    TraceNot,
    TraceOr,
)
from receiver.console.queries.filters.filter_values import (
    OPERATORS,
    SCOPES,
    Place,
    Value,
    check_trace_terms,
    comparison,
    meant,
    reject_trace_fields,
    text_or_wildcard,
    unquoted,
)
from receiver.console.queries.filters.plain_text import NAMES, id_field, is_plain, plain_parts, quoted_word
from receiver.errors import InvalidFilter

_FIELD = re.compile(
    r'(?:(?:span|resource|event|link|scope|instrumentation)\.)?"(?:[^"\\]|\\.)+"|[A-Za-z_][\w.:/-]*',
    re.DOTALL,
)
_OPERATOR = re.compile(r"=~|!~|!=|<=|>=|=|<|>")
_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s()"]+', re.DOTALL)
_VALUE_IN_BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s()"{}]+', re.DOTALL)
# The look-ahead keeps names such as `order.id` and `not-found` from beginning with a word.
_TEXT = re.compile(
    r'(?:"(?:[^"\\]|\\.)+"|[^\s()"{}=<>!~]+)(?=[\s)}]|$)(?!\s*(?:[=<>]|![=~])|\s+(?i:exists)(?![\w.:/-]))',
    re.DOTALL,
)
"""A word or a quoted text that is not the field of a comparison."""
_WORD = re.compile(r"(AND|OR|NOT|EXISTS)(?![\w.:/-])", re.IGNORECASE)
_SETS = re.compile(r"(?:\s|\(|-|NOT(?![\w.:/-]))*\{", re.IGNORECASE)
"""Beginning of a condition on traces: no filter of spans has a brace before its first field."""
_TRACEQL = ("&&", "||", "!", ".", "`")
_IS_TRACEQL = (
    "this is TraceQL, which is a query of its own (q in the API and MCP, --traceql on the command line)"
)

Part = TypeVar("Part")


class BareText(NamedTuple):
    """A text without a field, as a search for it is written with a field."""

    start: int
    end: int
    value: str
    """The text in quotation marks."""


def has_spansets(text: str) -> bool:
    """Return whether the text begins as a condition on traces."""
    return _SETS.match(text) is not None


def bare_texts(text: str) -> list[BareText]:
    """Return the texts without a field in a filter, in their order. Raises `InvalidFilter`."""
    parser = _Parser(text)
    parser.any_set(0) if _SETS.match(text) else parser.spans()
    return parser.bare_texts


def with_text_field(text: str, field: str) -> str:
    """Return the filter with a field for each text that has none: `text`, or `text:all` to search more."""
    if is_plain(text):
        return " ".join(
            f"{'-' if part.is_negated else ''}{part.text if part.is_kept else f'{field}={part.value}'}"
            for part in plain_parts(text)
        )
    result, at = "", 0
    for bare in bare_texts(text):
        gap = text[at : bare.start]
        is_joined = gap and not gap[-1].isspace() and gap[-1] not in "({-"
        result += f"{gap}{' ' * bool(is_joined)}{field}={bare.value}"
        at = bare.end
    return result + text[at:]


def parse_filter(text: str) -> Filter:
    """Parse a filter of spans. An empty text matches every span."""
    parser = _Parser(text)
    if _SETS.match(text):
        raise parser.place.invalid("braces make a condition on traces; expected a condition on spans")
    found = parser.spans()
    reject_trace_fields(found)
    return found


def parse_trace_filter(text: str) -> TraceFilter:
    """Parse a filter of traces. Without braces it is a condition on a single span of the trace."""
    parser = _Parser(text)
    found: TraceFilter
    if _SETS.match(text):
        found = parser.any_set(0)
        if not parser.at_end():
            raise parser.place.invalid(
                "expected &&, || or the end after a spanset; each condition is in braces"
            )
    else:
        found = HasSpan(parser.spans())
    check_trace_terms(found)
    return found


class _Parser(Cursor):
    """Recursive descent over the text."""

    _in_braces = False

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.bare_texts: list[BareText] = []

    def spans(self) -> Filter:
        """Parse the whole text as a filter of spans."""
        if self.at_end():
            return And(())
        if is_plain(self.text):
            return self._words()
        found = self._any_of(0)
        if self.next_is("{"):
            raise self.place.invalid("a spanset beside a comparison; put the comparison in braces of its own")
        if not self.at_end():
            raise self.place.invalid("unexpected character; expected a field such as service")
        return found

    def _words(self) -> Filter:
        """Return the search for a text without a comparison."""
        parts = []
        for part in plain_parts(self.text):
            if INTRINSICS.get(part.text) == "flag":
                found: Filter = Comparison(Intrinsic(part.text), "=", "1", part.start + 1)
            else:
                found = self._searched(BareText(part.start, part.start + len(part.text), part.value))
            parts.append(Not(found) if part.is_negated else found)
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def any_set(self, depth: int) -> TraceFilter:
        """Parse spansets that are joined by OR."""
        parts = [self._all_sets(depth)]
        while self.skip("||") or self._skip_word("OR"):
            parts.append(self._all_sets(depth))
        return parts[0] if len(parts) == 1 else TraceOr(tuple(parts))

    def _all_sets(self, depth: int) -> TraceFilter:
        parts = [self._set(depth)]
        while self.skip("&&") or self._skip_word("AND") or _SETS.match(self.text, self.at):
            parts.append(self._set(depth))
        return parts[0] if len(parts) == 1 else TraceAnd(tuple(parts))

    def _set(self, depth: int) -> TraceFilter:
        self.check_depth(depth)
        if self._skip_word("NOT") or self.skip("-"):
            return TraceNot(self._set(depth + 1))
        if self.skip("("):
            return self._closed(self.any_set, depth)
        self.expect("{", "expected a spanset: a condition in braces, like {service=web status=error}")
        # An empty spanset has no comparison, but it is a condition in the statement and therefore counts.
        if self.next_is("}"):
            self.count_term()
            self.skip("}")
            return HasSpan(And(()))
        self._in_braces = True
        found = self._any_of(depth)
        self._in_braces = False
        if self.next_is(*_TRACEQL):
            raise self.place.invalid(_IS_TRACEQL)
        self.expect("}", "a brace is not closed; expected '}'")
        return HasSpan(found)

    def _closed(self, parse: Callable[[int], Part], depth: int) -> Part:
        inside = parse(depth + 1)
        self.expect(")", "a parenthesis is not closed; expected ')'")
        return inside

    def _any_of(self, depth: int) -> Filter:
        self.check_depth(depth)
        parts = [self._all_of(depth)]
        while self._skip_word("OR"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all_of(self, depth: int) -> Filter:
        parts = [self._part(depth)]
        while self._skip_word("AND") or self._has_more():
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _has_more(self) -> bool:
        if self.at_end() or self._peek_word("OR"):
            return False
        return not self.next_is(")", *(("}", *_TRACEQL) if self._in_braces else ("{",)))

    def _part(self, depth: int) -> Filter:
        self.check_depth(depth)
        if self._skip_word("NOT") or self.skip("-"):
            return Not(self._part(depth + 1))
        if self.skip("("):
            return self._closed(self._any_of, depth)
        return self._term()

    def _term(self) -> Filter:
        self.count_term()
        place = self.place
        if found := self._bare_text():
            return self._searched(found)
        # A word is never a field; an attribute with such a key has to be quoted.
        name = None if _WORD.match(self.text, self.at) else self.take(_FIELD)
        if not name:
            self._reject(place)
        field = field_of(name, place)
        self.at_end()
        operator_place = self.place
        operator = self.take(_OPERATOR)
        if operator:
            return comparison(field, _operator(operator), self._value(), operator_place)
        if isinstance(field, Intrinsic) and INTRINSICS[field.name] == "flag":
            return Comparison(field, "=", "1", place.column)
        if self._skip_word("EXISTS"):
            if isinstance(field, Attribute):
                return Exists(field)
            raise place.invalid("every span has this field; expected an attribute before exists")
        raise operator_place.invalid("expected an operator after the field: = != < <= > >= =~ !~ or exists")

    def _reject(self, place: Place) -> NoReturn:
        """Raise for a text that is no field."""
        if self._in_braces and self.next_is(*_TRACEQL):
            raise place.invalid(_IS_TRACEQL)
        if self.next_is('"'):
            raise place.invalid("the quoted text is not closed; expected a quotation mark")
        raise place.invalid(
            "expected a field such as service, an attribute such as http.route, or a quoted text"
        )

    def _bare_text(self) -> BareText | None:
        """Move past a text that is not the field of a comparison, if it comes next."""
        match = _TEXT.match(self.text, self.at)
        # In braces only a quoted text: TraceQL has other meanings for words.
        if match is None or _WORD.match(match[0]) or (self._in_braces and match[0][0] != '"'):
            return None
        if match[0] in NAMES:
            return None
        self.at = match.end()
        return BareText(*match.span(), match[0] if match[0][0] == '"' else quoted_word(match[0]))

    def _searched(self, found: BareText) -> Filter:
        """Return the condition that a text without a field stands for."""
        column, text = found.start + 1, found.value[1:-1]
        field = id_field(text)
        has_id = Comparison(Intrinsic(field), "=", text if field == "deployment" else text.lower(), column)
        searched = Comparison(Intrinsic("text"), "=", text_or_wildcard(text), column)
        if field:
            # A message may name an id.
            return Or((has_id, searched))
        self.bare_texts.append(found)
        return searched

    def _value(self) -> Value:
        self.at_end()
        place = self.place
        found = self.take(_VALUE_IN_BRACES if self._in_braces else _VALUE)
        if not found and self.next_is('"'):
            raise place.invalid("the quoted value is not closed; expected a quotation mark")
        if not found:
            raise place.invalid("the value is missing; expected a value after the operator")
        if found.startswith('"'):
            return Value(found[1:-1], place, is_quoted=True)
        # `a==b` would otherwise compare with the text `=b`.
        if found[0] in "=~<>!":
            raise place.invalid("unknown operator; expected = != < <= > >= =~ or !~, or a quoted value")
        # Both languages accept the text, with different meanings, so neither is assumed.
        if self._in_braces and (found == "nil" or re.search(r"&&|\|\||^`", found)):
            raise place.invalid(f"{_IS_TRACEQL}; quote a value that is meant literally")
        return Value(found, place)

    def _peek_word(self, word: str) -> bool:
        match = _WORD.match(self.text, self.at)
        return match is not None and match[1].upper() == word

    def _skip_word(self, word: str) -> bool:
        if self.at_end() or not self._peek_word(word):
            return False
        self.at += len(word)
        return True


def _operator(text: str) -> Operator:
    # The search narrows the type to the literals, which a cast would do without a check.
    return next(operator for operator in OPERATORS if operator == text)


def field_of(name: str, place: Place) -> Intrinsic | Attribute:
    """Return the field with this name."""
    known = ALIASES.get(name, name)
    if known in INTRINSICS:
        return Intrinsic(known)
    scope, dot, key = name.partition(".")
    # Before the scopes: a quoted key may contain a dot.
    if name.startswith('"'):
        return Attribute("", unquoted(name[1:-1]))
    if dot and scope in SCOPES and key:
        found = next(known for known in SCOPES if known == scope)
        return Attribute(found, unquoted(key[1:-1]) if key.startswith('"') else key)
    if dot and key:
        return Attribute("", name)
    hint = meant(name.lower(), [*INTRINSICS, *ALIASES]) or "expected a field such as service or status."
    raise InvalidFilter(
        f"unknown field; {hint} An attribute without a dot is written span.KEY; a text is quoted",
        column=place.column,
    )
