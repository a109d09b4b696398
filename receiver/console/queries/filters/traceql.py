r"""Subset of TraceQL, the query language of Grafana Tempo: everything that Grafana's query builder writes.

    sets       = set { "&&" set } | set { "||" set }
    set        = "(" sets ")" | "{" [ condition ] "}"
    condition  = part { "&&" part } | part { "||" part }
    part       = "!" negated | "(" condition ")" | field operator literal | attribute | "true" | "false"
    negated    = "!" negated | "(" condition ")" | attribute | "true" | "false"

Differences from the one-line form: `*` in a text is a star; a regular expression has to match the whole text;
`= nil` and `!= nil` test whether an attribute is absent; an attribute alone is compared with `true`.
An integer is compared as text by `=` and `!=`, which indexes answer; other numbers are compared as numbers.

Tempo gives `&&` and `||` the same precedence. Side by side without parentheses they are an error here,
because most readers expect `&&` to bind more tightly. Pipelines, metrics, structural operators and arithmetic
are errors that name them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from receiver.console.queries.filters.cursor import Cursor
from receiver.console.queries.filters.filter import (
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
    TraceOr,
)
from receiver.console.queries.filters.filter_values import (
    BY_SIZE,
    OPERATORS,
    REGEX,
    SCOPES,
    Place,
    Value,
    anchored,
    check_trace_terms,
    comparison,
    meant,
    unquoted,
    unusable_character,
)

FIELDS: Final[Mapping[str, str]] = {
    "name": "operation",
    "status": "status",
    "statusMessage": "status-message",
    "kind": "kind",
    "duration": "duration",
    "span:name": "operation",
    "span:status": "status",
    "span:statusMessage": "status-message",
    "span:kind": "kind",
    "span:duration": "duration",
    "traceDuration": "trace:duration",
    "rootName": "trace:name",
    "rootServiceName": "trace:service",
    "trace:duration": "trace:duration",
    "trace:rootName": "trace:name",
    "trace:rootService": "trace:service",
    "trace:id": "trace",
    "event:name": "event:name",
    "instrumentation:name": "scope:name",
    "instrumentation:version": "scope:version",
}
"""Field of TraceQL → the intrinsic field of the tree."""
_NOT_SUPPORTED_FIELDS: Final = (
    "childCount",
    "nestedSetLeft",
    "nestedSetRight",
    "nestedSetParent",
    "parent",
    "span:id",
    "span:parentID",
    "span:childCount",
    "event:timeSinceStart",
    "link:spanID",
    "link:traceID",
)
_NOT_SUPPORTED_BETWEEN_SETS: Final[Mapping[str, str]] = {
    "with": "hints (with ...)",
    "|": "pipelines and metrics (| count(), | rate(), ...)",
    **dict.fromkeys(
        (">", "<", "~", "!>", "!<", "!~", "&>", "&<", "&~"),
        "structural operators between spansets (>> << > < ~)",
    ),
}
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "^")

_SCOPE = re.compile(rf"(?:(?:{'|'.join(SCOPES)}|parent)\.|\.)")
_KEY_PART = re.compile(r'"(?:[^"\\]|\\[\\"])*"|[^\s{}()=~!<>&|^,"]+')
_NAME = re.compile(r"[A-Za-z_]\w*(?::\w+)?")
_OPERATOR = re.compile(r"=~|!~|!=|<=|>=|=|<|>")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')
_NUMERIC = re.compile(r"-?(?:[0-9]|\.[0-9])(?:[eE][+-]?[0-9]|[\w.])*")
_INTEGER = re.compile(r"-?[0-9]+")
_LITERAL_WORD = re.compile(r"[A-Za-z_]\w*")
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL
)
_ESCAPED: Final = dict(zip('abfnrtv\\"', '\a\b\f\n\r\t\v\\"', strict=True))

Node = TypeVar("Node")


class _Literal(NamedTuple):
    kind: str
    """string, number, duration, word or nil."""
    text: str
    place: Place


def parse_traceql(text: str) -> TraceFilter:
    """Parse a query. An empty text matches every trace."""
    parser = _Parser(text)
    if parser.at_end():
        return HasSpan(And(()))
    found = parser.sets(0)
    parser.expect_end()
    check_trace_terms(found)
    return found


class _Parser(Cursor):
    """Recursive descent over the text."""

    def sets(self, depth: int) -> TraceFilter:
        """Parse spansets that are joined."""
        word, parts = self._joined(self._set, depth)
        if not word:
            return parts[0]
        return TraceAnd(parts) if word == "&&" else TraceOr(parts)

    def expect_end(self) -> None:
        """Raise for an unsupported part after the spansets."""
        if self.at_end():
            return
        for text, name in _NOT_SUPPORTED_BETWEEN_SETS.items():
            if self.next_is(text):
                raise self.place.invalid(
                    f"{name} are not supported; expected && || or the end after a spanset"
                )
        raise self.place.invalid("expected && || or the end after a spanset")

    def _joined(self, parse: Callable[[int], Node], depth: int) -> tuple[str, tuple[Node, ...]]:
        """Return the operator and the parts that it joins; an empty operator with a single part."""
        self.check_depth(depth)
        parts = [parse(depth)]
        word = next((word for word in ("&&", "||") if self.next_is(word)), "")
        while word and self.skip(word):
            parts.append(parse(depth))
        if word and self.next_is("&&", "||"):
            raise self.place.invalid("&& and || side by side; put parentheses around the parts")
        return word, tuple(parts)

    def _set(self, depth: int) -> TraceFilter:
        if self.skip("("):
            found = self.sets(depth + 1)
            # Names an unsupported operator here, instead of reporting an open parenthesis.
            if not self.next_is(")"):
                self.expect_end()
            self.expect(")", "a parenthesis is not closed; expected ')'")
            return found
        if not self.skip("{"):
            place, name = self.place, self.take(_NAME)
            problem = "aggregates and metrics are not supported; " if name and self.next_is("(") else ""
            raise place.invalid(f"{problem}expected a spanset: a condition in braces, like {{status=error}}")
        if self.next_is("}"):
            self.count_term()
            self.skip("}")
            return HasSpan(And(()))
        condition = self._condition(depth)
        self._reject_arithmetic()
        self.expect("}", "a brace is not closed; expected && || or '}'")
        return HasSpan(condition)

    def _condition(self, depth: int) -> Filter:
        word, parts = self._joined(self._part, depth)
        if not word:
            return parts[0]
        return And(parts) if word == "&&" else Or(parts)

    def _part(self, depth: int, *, is_negated: bool = False) -> Filter:
        self.check_depth(depth)
        if self.skip("!"):
            return Not(self._part(depth + 1, is_negated=True))
        if self.skip("("):
            found = self._condition(depth + 1)
            self._reject_arithmetic()
            self.expect(")", "a parenthesis is not closed; expected ')'")
            if not self.at_end() and _OPERATOR.match(self.text, self.at):
                raise self.place.invalid("comparisons of conditions are not supported; expected && || or '}'")
            return found
        return self._term(is_negated=is_negated)

    def _term(self, *, is_negated: bool) -> Filter:
        self.count_term()
        place = self.place
        field = self._attribute() or self._intrinsic()
        self._reject_arithmetic()
        self.at_end()
        operator_place = self.place
        text = self.take(_OPERATOR)
        if text and is_negated:
            raise operator_place.invalid("put parentheses around the comparison that '!' negates")
        if not text and isinstance(field, Intrinsic):
            raise operator_place.invalid("expected an operator after the field: = != < <= > >= =~ or !~")
        if not text or isinstance(field, bool):
            return self._alone(field, text, place)
        operator = next(operator for operator in OPERATORS if operator == text)
        found = _compared(field, operator, operator_place, self._literal())
        self._reject_arithmetic()
        return found

    def _alone(self, field: Intrinsic | Attribute | bool, operator: str, place: Place) -> Filter:  # noqa: FBT001 - a literal
        if operator:
            raise place.invalid("a literal before the operator is not supported; expected a field there")
        if isinstance(field, bool):
            return And(()) if field else Not(And(()))
        return Comparison(field, "=", "true", place.column)

    def _attribute(self) -> Attribute | None:
        self.at_end()
        place = self.place
        prefix = self.take(_SCOPE)
        if not prefix:
            return None
        if prefix == "parent.":
            raise place.invalid("attributes of the parent (parent.) are not supported")
        parts = []
        while part := self.take(_KEY_PART):
            parts.append(unquoted(part[1:-1]) if part.startswith('"') else part)
        if self.text.startswith('"', self.at):
            raise self.place.invalid('the quoted key is not closed, or has an escape other than \\\\ and \\"')
        if not "".join(parts):
            raise self.place.invalid("the key of an attribute is missing")
        return Attribute(next((scope for scope in SCOPES if f"{scope}." == prefix), ""), "".join(parts))

    def _intrinsic(self) -> Intrinsic | bool:
        place = self.place
        name = self.take(_NAME)
        if name in ("true", "false"):
            return name == "true"
        if name in FIELDS:
            return Intrinsic(FIELDS[name])
        if name in _NOT_SUPPORTED_FIELDS:
            raise place.invalid("this field of TraceQL is not supported")
        if not name:
            raise place.invalid(
                "expected a field such as name or span.http.route, then an operator and a value"
            )
        hint = meant(name, FIELDS) or "expected a field such as name or status."
        raise place.invalid(f"unknown field; {hint} An attribute is .KEY, span.KEY or resource.KEY")

    def _literal(self) -> _Literal:
        self.at_end()
        place = self.place
        if quoted := self.take(_STRING):
            return _Literal("string", _string(quoted, place), place)
        if self.next_is('"', "`"):
            raise place.invalid("the quoted value is not closed; expected a quotation mark")
        if text := self.take(_NUMERIC):
            return _Literal("duration" if text[-1].isalpha() else "number", text, place)
        if self.next_is("{", "(", ".") or _SCOPE.match(self.text, self.at):
            raise place.invalid("comparisons of a field with a field are not supported; expected a literal")
        word = self.take(_LITERAL_WORD)
        if not word:
            raise place.invalid(
                "the value is missing; expected a quoted text, a number, a duration or a word"
            )
        return _Literal("nil" if word == "nil" else "word", word, place)

    def _reject_arithmetic(self) -> None:
        if self.next_is(*_ARITHMETIC):
            raise self.place.invalid("arithmetic is not supported; expected && || or '}'")


def _string(quoted: str, place: Place) -> str:
    """Return the text of a literal with the escapes of Go."""
    if quoted.startswith("`"):
        return quoted[1:-1]

    def unescaped(match: re.Match[str]) -> str:
        if match[1]:
            return _ESCAPED[match[1]]
        digits = match[2] or match[3] or match[4]
        # In Go, \x80 and above are single bytes and not characters.
        if not digits or int(digits, 16) > 0x10FFFF or (match[2] and int(digits, 16) > 0x7F):  # noqa: PLR2004 - Unicode, ASCII
            raise place.invalid("unknown escape in the text; for a backslash write two, or quote with `")
        return chr(int(digits, 16))

    text = _ESCAPE.sub(unescaped, quoted[1:-1])
    if unusable_character(text) is not None:
        raise place.invalid("the text has a NUL character or is not UTF-8")
    return text


def _compared(
    field: Intrinsic | Attribute, operator: Operator, operator_place: Place, literal: _Literal
) -> Filter:
    if literal.kind == "nil":
        if isinstance(field, Intrinsic) or operator not in ("=", "!="):
            raise literal.place.invalid("nil is compared with an attribute, by = or !=")
        return Exists(field) if operator == "!=" else Not(Exists(field))
    problem = _mismatch(field, operator, literal)
    if problem:
        raise literal.place.invalid(problem)
    is_number = literal.kind == "number" and not _INTEGER.fullmatch(literal.text)
    text = literal.text
    if literal.kind == "number" and not is_number and operator not in BY_SIZE:
        # Stored integers have no leading zeros. A long text stays as it is: `int` refuses thousands of
        # digits.
        text = str(int(text)) if len(text) <= 30 else text  # noqa: PLR2004 - more than 64 bits have
    value = Value(text, literal.place, is_exact=True, is_number=is_number)
    found = comparison(field, operator, value, operator_place)
    return anchored(found) if operator in REGEX else found


def _mismatch(field: Intrinsic | Attribute, operator: Operator, literal: _Literal) -> str:
    """Return what is wrong with the kind of the literal; empty if nothing is."""
    if operator in REGEX and literal.kind != "string":
        return "a regular expression is a quoted text"
    if isinstance(field, Intrinsic):
        # `FIELDS` names no field of another kind.
        expected, problem = {
            "text": ("string", "expected a quoted text"),
            "duration": ("duration", "expected a duration with its unit, like 250ms"),
            "status": ("word", "expected a word without quotation marks, like error"),
            "kind": ("word", "expected a word without quotation marks, like server"),
        }[INTRINSICS[field.name]]
        return "" if literal.kind == expected else problem
    if literal.kind == "duration":
        return "no attribute is a duration; expected a text, a number, true, false or nil"
    if literal.kind == "word" and literal.text not in ("true", "false"):
        return "expected a quoted text, a number, true, false or nil"
    if operator in BY_SIZE and literal.kind != "number":
        return "< <= > >= compare numbers; expected a number without quotation marks"
    return ""
