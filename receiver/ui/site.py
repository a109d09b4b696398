"""Routes of the pages. The frame of a slow page is sent before its answer; an error is shown in the frame."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web

from receiver.api.access import CALLER, requires
from receiver.api.problems import problem_of
from receiver.api.source import Row, SourceWithSql
from receiver.errors import InvalidFilter, MalformedBody, ReceiverError
from receiver.query.traces.trace_model import trace_of
from receiver.ui import tail, trace_comparison
from receiver.ui.choices import Choices
from receiver.ui.connect import checks
from receiver.ui.connect_checks import verdict
from receiver.ui.document import HEADERS, document, go_to
from receiver.ui.facts import ReceiverFacts
from receiver.ui.filter_text import error_column
from receiver.ui.forms import form_of
from receiver.ui.page import Context, Page
from receiver.ui.pages import PAGES, pages_for
from receiver.ui.sql import link_of
from receiver.ui.static import HEADERS as STATIC_HEADERS
from receiver.ui.static import PREFIX, static_files
from receiver.ui.templating import environment, render
from receiver.ui.trace import columns, details
from receiver.ui.view import View

FRAME_AFTER_S = 0.05
"""A page that takes longer than this is sent in two parts: first its frame, so that the reader sees it."""
RANGES: Final = {
    "15m": "last 15 minutes",
    "1h": "last hour",
    "6h": "last 6 hours",
    "24h": "last 24 hours",
    "7d": "last 7 days",
    "30d": "last 30 days",
}
"""Time ranges of the menu: age → label."""
_NOT_TWO_SELECTED: Final = PAGES["trace_comparison"]._replace(
    name="selection", build=trace_comparison.not_two_selected
)
"""Page in place of the comparison of two traces if another number is selected."""


class Site:
    """The pages and their files."""

    def __init__(self, source_for: Callable[[web.Request], SourceWithSql], facts: ReceiverFacts) -> None:
        self._source_for = source_for
        self._facts = facts
        self._templates = environment()
        self._choices = Choices()

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes of all pages and files."""
        for page in PAGES.values():
            router.add_get(page.path, self._handler(page))
        router.add_post(PAGES["sql"].path, self._statement)
        router.add_get("/traces/compare", self._compare_traces)
        router.add_get("/choices", self._offered)
        router.add_get("/connect/checks", self._checks)
        router.add_get("/tail/rows", self._tail_rows)
        router.add_get("/trace/{id}/outline", self._outline)
        router.add_get("/trace/{id}/span/{span}", self._span)
        router.add_get(PREFIX + "/{digest}/{name}", _send_file)

    def _handler(self, page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        @requires(page.role, within_projects=page.within_projects)
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self.page(request, page, request.query)

        return handle

    @requires("operator")
    async def _statement(self, request: web.Request) -> web.StreamResponse:
        """Lead to the page of a SQL statement, or answer with it if the statement is too long for a URL."""
        form = await form_of(request)
        if url := link_of(form):
            return go_to(url)
        return await self.page(request, PAGES["sql"], form)

    async def page(self, request: web.Request, page: Page, query: Mapping[str, str]) -> web.StreamResponse:
        """Answer with a page. `query`: its parameters."""
        if request.method == hdrs.METH_HEAD:
            return document(HTTPStatus.OK, "")
        try:
            view = self._view(request, query)
        except MalformedBody as error:
            return await self._refusal(request, page, error)
        build = asyncio.ensure_future(self._build(page, view))
        choices = [asyncio.ensure_future(self._choices.load(view))] if page.has_pickers else []
        try:
            # Both: a frame that is sent without choices gets them from its script.
            await asyncio.wait([build, *choices], timeout=FRAME_AFTER_S)
            frame = await self._frame(page, view)
            if build.done():
                status, rest = build.result()
                return document(status, frame + rest)
            response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/html; charset=utf-8"})
            # Not compressed: a compressor would keep the frame until the rest is there.
            await response.prepare(request)
            await response.write(frame.encode())
            _, rest = await build
            await response.write_eof(rest.encode())
            return response
        finally:
            for task in (build, *choices):
                task.cancel()

    @requires("viewer", within_projects=True)
    async def _offered(self, request: web.Request) -> web.Response:
        """Answer with the projects and deployments for the script that offers them in the frame."""
        view = self._view(request)
        await self._choices.load(view)
        lists = self._choices.of(view).items()
        return _json(orjson.dumps({name: [each._asdict() for each in offered] for name, offered in lists}))

    @requires("viewer")
    async def _checks(self, request: web.Request) -> web.Response:
        """Answer with the check list of a drain for the script that shows it."""
        steps = await checks(self._view(request))
        answer = {"verdict": verdict(steps)._asdict(), "checks": [step._asdict() for step in steps]}
        return _json(orjson.dumps(answer))

    @requires("viewer", within_projects=True)
    async def _tail_rows(self, request: web.Request) -> web.Response:
        """Answer with the spans received since a time for the script that adds them to the page."""
        view = self._view(request)
        answer = await tail.ask(view)
        rows = [tail.shown(view, row) for row in answer.rows]
        return _json(orjson.dumps({"rows": rows, "is_cut": answer.is_cut}))

    @requires("viewer", within_projects=True)
    async def _compare_traces(self, request: web.Request) -> web.StreamResponse:
        """Lead to the comparison of the two traces `id` of a form."""
        ids = [quote(trace_id, safe="") for trace_id in request.query.getall("id", [])]
        if len(ids) != 2:  # noqa: PLR2004 - A and B
            return await self.page(request, _NOT_TWO_SELECTED, request.query)
        return go_to(f"/trace/{ids[0]}/with/{ids[1]}")

    async def _refusal(self, request: web.Request, page: Page, error: MalformedBody) -> web.Response:
        """Return the description of an error of the parameters. The frame has the default time range."""
        view = self._view(request, {})
        frame = await self._frame(page, view)
        status, rest = self._trouble(page, view, error)
        return document(status, frame + rest)

    def _view(self, request: web.Request, query: Mapping[str, str] | None = None) -> View:
        return View(
            request.path,
            request.query if query is None else query,
            time.time(),
            self._source_for(request),
            request.match_info,
            caller=request.get(CALLER),
            facts=self._facts,
        )

    @requires("viewer", within_projects=True)
    async def _outline(self, request: web.Request) -> web.Response:
        """Answer with the spans of a trace for the script that draws them."""
        body = await self._source_for(request).outline(request.match_info["id"], _outline_of)
        if body is None:
            raise web.HTTPNotFound
        return _json(body)

    @requires("viewer", within_projects=True)
    async def _span(self, request: web.Request) -> web.Response:
        """Answer with one span in full."""
        row = await self._source_for(request).span(request.match_info["id"], request.match_info["span"])
        if row is None:
            raise web.HTTPNotFound
        return _json(orjson.dumps(details(row)))

    async def _build(self, page: Page, view: View) -> tuple[int, str]:
        """Return the status and the content of a page, or of the description of what failed."""
        try:
            context = await page.build(view)
            status = context.get("status", HTTPStatus.OK)
            return status, self._render(page.name, page, view, context)
        except ReceiverError as error:
            return self._trouble(page, view, error)

    def _trouble(self, page: Page, view: View, error: ReceiverError) -> tuple[int, str]:
        problem, text = problem_of(error, "filter"), view.query.get("q", "")
        column = error_column(text) if isinstance(error, InvalidFilter) else 0
        context = {"trouble": problem.message, "text": text, "column": column}
        return problem.status, self._render("trouble", page, view, context)

    async def _frame(self, page: Page, view: View) -> str:
        state = await self._facts.state(view.now_s)
        context = {
            "ranges": RANGES,
            "state": state,
            "choices": self._choices.of(view),
        }
        return self._render("frame", page, view, context)

    def _render(self, name: str, page: Page, view: View, context: Context) -> str:
        frame = {"page": page, "pages": pages_for(view), "view": view}
        return render(self._templates, name, {**frame, **context})


def _outline_of(rows: list[Row]) -> bytes:
    return orjson.dumps(columns(trace_of(rows)), option=orjson.OPT_NON_STR_KEYS)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers={**HEADERS, "Content-Type": "application/json"})


@requires("public")
async def _send_file(request: web.Request) -> web.Response:
    file = static_files().get(request.match_info["name"])
    if file is None or file.url != request.path:
        raise web.HTTPNotFound
    return web.Response(body=file.body, headers={**STATIC_HEADERS, "Content-Type": file.content_type})
