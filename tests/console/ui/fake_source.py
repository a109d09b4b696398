"""A source of spans for pages that has no span."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from receiver.console.api.source import Answer, Result, Row, SqlAnswer
from receiver.console.queries.filters.filter import Filter
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.raw_sql.statement import SqlQuery


class FakeSource:
    """Source that records the parameters of each query, and returns no row after a delay, or an error."""

    allows_sql = False

    def __init__(self, delay_s: float = 0, error: Exception | None = None) -> None:
        self.delay_s = delay_s
        self.error = error
        self.queries: list[Mapping[str, str]] = []

    async def ask(self, _name: str, query: Mapping[str, str]) -> Answer:
        self.queries.append(query)
        await asyncio.sleep(self.delay_s)
        if self.error:
            raise self.error
        return Answer([])

    async def hides_spans(self, _trace_id: str) -> bool:
        return False

    async def linking(self, _trace_id: str, _span_id: str) -> Answer:
        return Answer([])

    async def outline(
        self, _trace_id: str, _read: Callable[[list[Row]], Result], _by: GroupKey | None = None
    ) -> Result | None:
        return None

    def prepare(self, _trace_id: str, _answer: Callable[[], bytes]) -> None:
        """Prepare nothing: no trace is found."""

    async def prepared(self, _trace_id: str) -> bytes | None:
        return None

    async def matching(self, _trace_id: str, _tree: Filter) -> list[str]:
        return []

    async def span(self, _trace_id: str, _span_id: str) -> Row | None:
        return None

    def within(self, _projects: Sequence[str]) -> FakeSource:
        return self

    async def sql(self, _asked: SqlQuery) -> SqlAnswer:
        raise NotImplementedError

    async def sql_columns(self) -> list[Row]:
        return []
