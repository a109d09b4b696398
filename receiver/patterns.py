r"""Regular expressions that are searched in linear time whatever the text is: no backtracking.

The syntax is a part of Python's: characters, `.`, classes in brackets, `\d`, `\w`, `\s` and their opposites,
groups, `|`, `?`, `*`, `+`, `{m}`, `{m,}` and `{m,n}`. Upper and lower case are equal. Anchors, back
references and assertions are refused.

Invariant: a search takes at most `STATES_MAX` steps for each character of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from receiver.errors import OperatorError

STATES_MAX: Final = 4_096
"""Maximum number of states of an automaton; a counted repeat has copies of what it repeats."""
DEPTH_MAX: Final = 8
"""Maximum depth of groups."""
TRANSITIONS_MAX: Final = 20_000
"""Transitions that are remembered; at the limit all are forgotten."""
_SYMBOL: Final = re.compile(
    r"\\[dDwWsS]|\\[^A-Za-z0-9]|\[\^?(?:\\.|[^\]\\])+\]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\}|[^\\\[\]{}^$]",
    re.DOTALL,
)
_REPEATS: Final = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_FOUND: Final = 0
"""The state in which a pattern has matched."""

Part = Callable[[int], int]
"""Adds the states of a part of a pattern in front of another state, and returns the first of them."""


class PatternSet:
    """Patterns that are searched together."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raise `OperatorError` for a pattern that is not allowed."""
        self._states = _States()
        firsts = {_Parser(pattern, self._states).parsed()(_FOUND) for pattern in patterns}
        self._first = self._states.closure(firsts)
        if _FOUND in self._first:
            raise OperatorError("matches the empty text; expected a pattern that needs a character")
        self._transitions: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def is_found_in(self, text: str) -> bool:
        """Return whether a part of the text matches a pattern."""
        current = self._first
        for character in text:
            after = self._transitions.get((current, character))
            current = self._after(current, character) if after is None else after
            if _FOUND in current:
                return True
        return False

    def _after(self, current: frozenset[int], character: str) -> frozenset[int]:
        # With the first states, because a match may begin at each character.
        after = self._states.after(current, character) | self._first
        if len(self._transitions) >= TRANSITIONS_MAX:
            self._transitions.clear()
        self._transitions[current, character] = after
        return after


class _State(NamedTuple):
    accepts: Callable[[str], object] | None
    """Returns whether it accepts a character. `None`: it is in all its `following` states at once."""
    following: Sequence[int]


class _States:
    """The states of an automaton. The number of a state is its place."""

    def __init__(self) -> None:
        self._all = [_State(None, ())]

    def add(self, accepts: Callable[[str], object] | None, following: Sequence[int]) -> int:
        """Add a state and return its number."""
        if len(self._all) >= STATES_MAX:
            raise OperatorError(f"needs over {STATES_MAX} states; expected smaller numbers of repeats")
        self._all.append(_State(accepts, following))
        return len(self._all) - 1

    def loop(self, part: Part, after: int) -> int:
        """Add a part that is repeated any number of times."""
        following: list[int] = [after]
        number = self.add(None, following)
        following.append(part(number))
        return number

    def after(self, current: frozenset[int], character: str) -> frozenset[int]:
        """Return the states after a character."""
        states = [self._all[number] for number in current]
        accepting = [state for state in states if state.accepts is not None and state.accepts(character)]
        return self.closure({number for state in accepting for number in state.following})

    def closure(self, numbers: set[int]) -> frozenset[int]:
        """Return the states, and those that are reached from them without a character."""
        found, waiting = set(numbers), list(numbers)
        while waiting:
            state = self._all[waiting.pop()]
            if state.accepts is None:
                waiting.extend(set(state.following) - found)
                found.update(state.following)
        return frozenset(found)


class _Parser:
    """Parser of a pattern. Patterns come from the settings, so the recursion into groups has a limit."""

    def __init__(self, pattern: str, states: _States) -> None:
        symbols = _SYMBOL.findall(pattern)
        if "".join(symbols) != pattern:
            raise OperatorError(
                "is no pattern that is known here; expected characters, '.', classes, groups, '|' and repeats"
            )
        self._symbols = symbols
        self._states = states
        self._depth = 0

    def parsed(self) -> Part:
        """Return the whole pattern."""
        whole = self._choice()
        if self._symbols:
            raise OperatorError("has a ')' without its '('")
        return whole

    def _choice(self) -> Part:
        parts = [self._sequence()]
        while self._symbols and self._symbols[0] == "|":
            self._symbols.pop(0)
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return lambda after: self._states.add(None, [part(after) for part in parts])

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._symbols and self._symbols[0] not in "|)":
            parts.append(self._repeated(self._single()))
        return _joined(parts)

    def _single(self) -> Part:
        symbol = self._symbols.pop(0)
        if symbol == "(":
            return self._group()
        if symbol in _REPEATS or symbol.startswith("{"):
            raise OperatorError("repeats nothing; expected a character or a group before the repeat")
        try:
            # Python knows the classes and the two cases of each character.
            is_class = symbol[0] in "[\\" or symbol == "."
            source = symbol if is_class else re.escape(symbol)
            accepts = re.compile(source, re.IGNORECASE | re.DOTALL).fullmatch
        except re.error as error:
            raise OperatorError("has a class that is not valid") from error
        return lambda after: self._states.add(accepts, [after])

    def _group(self) -> Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise OperatorError(f"has groups in over {DEPTH_MAX} levels; expected fewer")
        inner = self._choice()
        if not self._symbols:
            raise OperatorError("has a '(' without its ')'")
        self._symbols.pop(0)
        self._depth -= 1
        return inner

    def _repeated(self, part: Part) -> Part:
        if not self._symbols:
            return part
        symbol = self._symbols[0]
        if symbol not in _REPEATS and not symbol.startswith("{"):
            return part
        self._symbols.pop(0)
        low, high = _REPEATS[symbol] if symbol in _REPEATS else _counts(symbol)
        if high is None:
            return _joined([*[part] * low, lambda after: self._states.loop(part, after)])
        optional = [self._optional(part)] * (high - low)
        return _joined([*[part] * low, *optional])

    def _optional(self, part: Part) -> Part:
        return lambda after: self._states.add(None, [after, part(after)])


def _counts(symbol: str) -> tuple[int, int | None]:
    """Return the limits of a repeat `{m}`, `{m,}` or `{m,n}`."""
    low, comma, high = symbol[1:-1].partition(",")
    limits = int(low), int(high) if high else None if comma else int(low)
    if limits[1] is not None and limits[1] < limits[0]:
        raise OperatorError("has a repeat whose minimum is over its maximum; expected {MIN,MAX}")
    return limits


def _joined(parts: Sequence[Part]) -> Part:
    def joined(after: int) -> int:
        for part in reversed(parts):
            after = part(after)
        return after

    return joined
