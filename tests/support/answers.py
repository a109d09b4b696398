"""Answers of queries, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from receiver.console.queries.limits import LimitedLines
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from tests.support.random_filters import NOW_S

Row = dict[str, Any]


def rows_of(pieces: Iterable[bytes]) -> list[Row]:
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


def answer_of(store: Store, name: str, query: Mapping[str, str], now_s: float = NOW_S) -> LimitedLines:
    """Send a query by its name. Its rows are read by `pieces`."""
    question = QUESTIONS[name]
    return question.ask(store, question.parse(query), now_s)


def ask(store: Store, name: str, **query: str) -> list[Row]:
    """Return the rows of a query by its name."""
    return rows_of(answer_of(store, name, query).pieces())
