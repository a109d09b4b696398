"""Patterns for secrets: searched in linear time, and refused with the reason."""

from __future__ import annotations

import re

import pytest

from receiver.errors import OperatorError
from receiver.transcode import PatternSet


def test_one_of_several_patterns_is_enough() -> None:
    searched = PatternSet(["secret", "eyJ", "a.b"])

    assert searched.is_found_in("a SECRET")
    assert searched.is_found_in("eyj")
    assert searched.is_found_in("a\nb")
    assert not searched.is_found_in("open")


def test_no_pattern_finds_nothing() -> None:
    assert not PatternSet([]).is_found_in("text")


def test_pattern_that_needs_exponential_time_elsewhere_is_searched_in_linear_time() -> None:
    # Engines with backtracking take 2**50000 steps for this text.
    assert not PatternSet(["(a+)+b", r"(\w*\w*)*\d\d"]).is_found_in("a" * 50_000)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a*", "matches the empty text; expected a pattern that needs a character"),
        ("", "matches the empty text"),
        (r"(a)\1", "is not a regular expression: backreferences are not supported"),
        ("(?=a)", "is not a regular expression: look-around"),
        ("*a", "is not a regular expression: repetition operator missing expression"),
        ("(a", "is not a regular expression: unclosed group"),
        ("a{3,2}", "is not a regular expression: invalid repetition count range"),
        ("((a{999}){999}){999}", "needs over 4194304 bytes when compiled"),
        ("(" * 33 + "a" + ")" * 33, "is not a regular expression: exceed the maximum number"),
    ],
)
def test_pattern_that_is_not_allowed_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(problem)):
        PatternSet([pattern])
