"""Patterns of functions that find all matches: one that may read a text again for each match is refused."""

from __future__ import annotations

from receiver.console.queries.raw_sql.patterns import PATTERN_CHARS_MAX, is_linear
from tests.support.cases import each_case


@each_case(
    "pattern",
    [
        "",
        "[0-9]+",
        r"\d+|[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}",
        r"(\w+)=(\w*)",
        r"(\d{1,3}\.){3}\d{1,3}",
        r"(?P<key>[^=]+)=",
        "(?i)error",
        "(?:ab)+c",
        r"\p{L}+",
        "[[:alpha:]]+x",
        "[]a]+[^]]b*?",
        "a{2,}b?",
        "a" * PATTERN_CHARS_MAX,
    ],
)
def test_pattern_that_reads_little_beyond_its_match_is_accepted(pattern: str) -> None:
    assert is_linear(pattern)


@each_case(
    "pattern",
    [
        "a(.*b)?",
        "a(.*b)??",
        "a(.*b){0,1}",
        "a(.{2,}b)*",
        "a((.*b))?",
        "a(x|(.*b))?",
        "a.*b|a",
        "a|a.*b",
        "(?i:a.*b|a)",
        "a(?:b|.*c)",
        "a(?P<rest>.*b)?",
        "a([]].*b)?",
    ],
)
def test_pattern_that_may_read_the_whole_text_for_each_match_is_refused(pattern: str) -> None:
    assert not is_linear(pattern)


@each_case("pattern", ["(", ")", "a)", "[a", r"\Qa.*\E", "\\", "a" * (PATTERN_CHARS_MAX + 1)])
def test_pattern_that_is_not_understood_is_refused(pattern: str) -> None:
    assert not is_linear(pattern)
