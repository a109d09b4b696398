"""Time of each page, and of the queries within it, of a site in this process over a receiver's store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from benchmarks.peers import MeasurementError
from benchmarks.ui.results import PageRun
from benchmarks.ui.shop import PARAMETERS
from receiver.config.load import Loaded
from receiver.console.api.query_queue import QUERIES_MAX
from receiver.console.api.routes import Api
from receiver.console.api.source import Answer, ApiSource
from receiver.console.api.spool import SpoolSpace
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.pages.table import PAGES
from receiver.console.ui.site import Site
from receiver.dead_letters.directory import DeadLetterList
from receiver.engine.embedded import EmbeddedStore
from receiver.platform.feature import TEMPLATES, pages_of
from receiver.platform.installations.platform_records import open_records
from receiver.reports import LedgerReport
from receiver.settings import GIB, Settings
from receiver.writer.progress import Progress
from tests.support.receiver_facts import DeadLettersToRead


class TimedSource(ApiSource):
    """Source of a page that adds up the time of its queries."""

    queries_ms = 0.0

    async def _answer(self, *arguments: Any) -> Answer:  # noqa: ANN401 - those of the method that it replaces
        begin = time.perf_counter()
        try:
            return await super()._answer(*arguments)
        finally:
            self.queries_ms += (time.perf_counter() - begin) * 1_000


def page_times(directory: Path, trace_id: str, runs: int) -> dict[str, list[PageRun]]:
    """Ask for each page with a time range, `runs` times after a first request that is not counted."""
    return asyncio.run(_page_times(directory, trace_id, runs))


async def _page_times(directory: Path, trace_id: str, runs: int) -> dict[str, list[PageRun]]:
    sources: list[TimedSource] = []
    results: dict[str, list[PageRun]] = {}
    async with _site(directory, sources) as client:
        for path, query in _addresses(trace_id):
            for run in range(runs + 1):
                sources.clear()
                begin = time.perf_counter()
                answer = await client.get(path, params=query)
                body = await answer.read()
                page_ms = (time.perf_counter() - begin) * 1_000
                if b"The page cannot be shown:" in body:
                    raise MeasurementError(f"{path}: answered with an error")
                if run:
                    queries_ms = sum(source.queries_ms for source in sources)
                    results.setdefault(path, []).append(PageRun(page_ms, queries_ms, len(body) / 1_024))
    return results


def _addresses(trace_id: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the pages of stored spans."""
    ids = {"trace": trace_id, "deployment": PARAMETERS["compare"]["b"]}
    for page in PAGES.values():
        if page.name in ids or not page.is_live:
            yield page.path.replace("{id}", ids.get(page.name, "")), PARAMETERS.get(page.name, {})


@asynccontextmanager
async def _site(
    directory: Path, sources: list[TimedSource]
) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    store = EmbeddedStore(
        directory / "store", database="otel", memory_bytes_max=4 * GIB, disk_free_min=lambda: 1
    )
    with closing(store), ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        api = Api(
            *(store, str, dict, dict, dict, dict, dict, dict, pool, stream_pool),
            SpoolSpace(directory, 0, lambda: 0),
        )
        settings = Settings(data_dir=str(directory))
        loaded = Loaded(settings, {}, ())
        ledger, dead_letters = LedgerReport("", "", "", "", [], []), DeadLetterList(directory)
        records = open_records(settings)
        facts = ReceiverFacts(
            *(loaded, Progress(), dict, lambda: 0, lambda _query: ledger),
            *(DeadLettersToRead(dead_letters.find, dead_letters.entries), lambda: None, pool),
            project_name=records.projects.name,
        )

        def source_for(request: web.Request) -> TimedSource:
            sources.append(TimedSource(api.reader, request))
            return sources[-1]

        async with TestClient(
            TestServer(api.application(Site(source_for, facts, pages_of(records), TEMPLATES)))
        ) as client:
            yield client
