"""Patterns: the same verdict as Python's regular expressions, in linear time."""

from __future__ import annotations

import random
import re

import pytest

from receiver import patterns
from receiver.errors import OperatorError
from receiver.patterns import PatternSet

ATOMS = ("a", "b", "c", r"\d", ".", "[ab]", "[^a]", r"\.", r"\w", r"[a-c1\]]")
REPEATS = ("*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}")


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    """Return a pattern of the supported syntax."""
    kind = rng.random()
    if kind < 0.5 or depth > 3:
        return rng.choice(ATOMS)
    inner = random_pattern(rng, depth + 1)
    if kind < 0.8:
        other = random_pattern(rng, depth + 1)
        return f"({inner}|{other})" if kind < 0.65 else inner + other
    return f"({inner}){rng.choice(REPEATS)}"


def test_verdict_is_that_of_python() -> None:
    rng = random.Random(15)
    for _ in range(600):
        pattern = random_pattern(rng) + rng.choice("abc")
        searched = PatternSet([pattern])
        for _ in range(5):
            text = "".join(rng.choice("abcAB1.\n]_é") for _ in range(rng.randrange(10)))
            found = re.search(pattern, text, re.IGNORECASE | re.DOTALL)
            assert searched.is_found_in(text) == bool(found), (pattern, text)


def test_steps_are_proportional_to_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    after = PatternSet._after  # noqa: SLF001 - counts the steps that are not remembered

    def counted(self: PatternSet, current: frozenset[int], character: str) -> frozenset[int]:
        nonlocal taken
        taken += 1
        return after(self, current, character)

    monkeypatch.setattr(PatternSet, "_after", counted)
    monkeypatch.setattr(patterns, "TRANSITIONS_MAX", 1)

    # Python's engine takes 2**200 steps for this text.
    assert not PatternSet(["(a+)+b", r"(\w*\w*)*\d\d"]).is_found_in("a" * 200)
    assert taken <= 200


def test_one_of_several_patterns_is_enough() -> None:
    searched = PatternSet(["secret", "eyJ"])

    assert searched.is_found_in("a SECRET")
    assert searched.is_found_in("eyj")
    assert not searched.is_found_in("open")


def test_no_pattern_finds_nothing() -> None:
    assert not PatternSet([]).is_found_in("text")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a*", "matches the empty text"),
        ("", "matches the empty text"),
        ("^a", "is no pattern that is known here"),
        ("a$", "is no pattern that is known here"),
        (r"a\b", "is no pattern that is known here"),
        (r"(a)\1", "is no pattern that is known here"),
        ("a{", "is no pattern that is known here"),
        ("(?=a)", "repeats nothing"),
        ("*a", "repeats nothing"),
        ("(a", "has a '(' without its ')'"),
        ("a)", "has a ')' without its '('"),
        ("a{3,2}", "has a repeat whose minimum is over its maximum"),
        ("[z-a]", "has a class that is not valid"),
        ("((a{99}){99}){99}", "needs over 4096 states"),
        ("(" * 9 + "a" + ")" * 9, "has groups in over 8 levels"),
    ],
)
def test_pattern_that_is_not_allowed_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(problem)):
        PatternSet([pattern])
