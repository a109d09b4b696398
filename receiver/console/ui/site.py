"""Routes of the pages. The frame of a slow page is sent before its content, and shows errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

import orjson
from aiohttp import hdrs, web
from multidict import MultiDict

from receiver.console.api.access import CALLER
from receiver.console.api.problems import problem_of
from receiver.console.api.responses import Handler
from receiver.console.api.route import Route
from receiver.console.api.source import SourceWithSql
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.filter_values import has_text, quoted
from receiver.console.queries.traces.trace_model import trace_of
from receiver.console.ui.choices import Choices
from receiver.console.ui.document import HEADERS, document, go_to
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.filter_text import error_column
from receiver.console.ui.forms import form_of
from receiver.console.ui.page import Context, Page
from receiver.console.ui.pages import tail, trace_comparison
from receiver.console.ui.pages.connect import checks
from receiver.console.ui.pages.connect_checks import verdict
from receiver.console.ui.pages.sql import link_of
from receiver.console.ui.pages.table import PAGES
from receiver.console.ui.pages.trace import details, linking, outline_body
from receiver.console.ui.pages.trace_views import MARKS, group_key_of, marked
from receiver.console.ui.parameters import FILTER, checked_parameters
from receiver.console.ui.static import HEADERS as STATIC_HEADERS
from receiver.console.ui.static import PREFIX, static_files
from receiver.console.ui.templating import environment, render, sentence
from receiver.console.ui.view import RANGE_PARAMETERS, REFRESHES, View
from receiver.console.ui.views.urls import PATHS
from receiver.errors import InvalidFilter, MalformedBody, ReceiverError
from receiver.http.media_types import JSON

FRAME_AFTER_S = 0.05
"""A page that takes longer is sent in two parts: first its frame, so that the user sees it at once."""
RECORD_FRAME_AFTER_S = 1.0
"""The same for a page of a single record: long enough to send status 404 if the record does not exist."""
SAME_PAGE_FRAME_AFTER_S = 5.0
"""The same for a page that a link or form of the same page opens: its old content stays until then."""
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
    name="selection",
    build=trace_comparison.not_two_selected,
    parameters=(*PAGES["search"].parameters, "id", "trace", "span"),
)
"""Page instead of the comparison of two traces if another number is selected."""


class Site:
    """The pages and their files."""

    def __init__(
        self,
        source_for: Callable[[web.Request], SourceWithSql],
        facts: ReceiverFacts,
        more: Sequence[Page] = (),
        templates: Sequence[str] = (),
    ) -> None:
        """`more`: pages of other areas; `templates`: packages with their templates."""
        self._source_for = source_for
        self._facts = facts
        self._pages = {**PAGES, **{page.name: page for page in more}}
        self._templates = environment(templates)
        self._choices = Choices()

    def routes(self) -> Iterator[Route]:
        """Yield the routes of all pages and files."""
        for page in self._pages.values():
            handler = self._handler(page)
            yield Route("GET", page.path, handler, page.role, within_projects=page.within_projects)
        yield Route("POST", PAGES["sql"].path, self._statement, "operator")
        yield Route("GET", "/traces/compare", self._compare_traces, "viewer", within_projects=True)
        yield Route("GET", "/filter/check", _check_filter, "viewer", within_projects=True)
        yield Route("GET", "/choices", self._offered, "viewer", within_projects=True)
        yield Route("GET", "/connect/checks", self._checks, "viewer")
        yield Route("GET", "/tail/rows", self._tail_rows, "viewer", within_projects=True)
        yield Route("GET", "/trace/{id}/outline", self._outline, "viewer", within_projects=True)
        yield Route("GET", "/trace/{id}/matches", self._matches, "viewer", within_projects=True)
        yield Route("GET", "/trace/{id}/span/{span}", self._span, "viewer", within_projects=True)
        path = "/trace/{id}/span/{span}/linking"
        yield Route("GET", path, self._linking, "viewer", within_projects=True)
        yield Route("GET", PREFIX + "/{digest}/{name}", _send_file, "public")

    def _handler(self, page: Page) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self.page(request, page, request.query)

        return handle

    async def _statement(self, request: web.Request) -> web.StreamResponse:
        """Redirect to the page of a SQL statement; send the page if the statement is too long for a URL."""
        form = await form_of(request)
        if url := link_of(form):
            return go_to(url)
        return await self.page(request, PAGES["sql"], form)

    async def page(self, request: web.Request, page: Page, query: Mapping[str, str]) -> web.StreamResponse:
        """Answer with a page. `query`: its parameters."""
        if request.method == hdrs.METH_HEAD:
            return document(HTTPStatus.OK, "")
        try:
            view = self._view_with_range(request, checked_parameters(query, page.parameters))
            if page.redirect is not None and (url := await page.redirect(view)):
                return go_to(url)
        except MalformedBody as error:
            return await self._refusal(request, page, error)
        build = asyncio.ensure_future(self._build(page, view))
        frame_after_s = max(FRAME_AFTER_S, RECORD_FRAME_AFTER_S * page.is_record)
        if urlsplit(request.headers.get(hdrs.REFERER, "")).path == request.path:
            frame_after_s = max(frame_after_s, SAME_PAGE_FRAME_AFTER_S)
        choices = [asyncio.ensure_future(self._choices.load(view))] if page.has_pickers else []
        try:
            # Both: the script of a frame that was sent without choices loads them.
            await asyncio.wait([build, *choices], timeout=frame_after_s)
            frame = await self._frame(page, view)
            if build.done():
                status, rest = build.result()
                return document(HTTPStatus.BAD_REQUEST if view.range_error else status, frame + rest)
            response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/html; charset=utf-8"})
            if view.range_error:
                response.set_status(HTTPStatus.BAD_REQUEST)
            # Not compressed: a compressor would hold the frame back until the rest is ready.
            await response.prepare(request)
            await response.write(frame.encode())
            _, rest = await build
            await response.write_eof(rest.encode())
            return response
        finally:
            for task in (build, *choices):
                task.cancel()

    async def _offered(self, request: web.Request) -> web.Response:
        """Answer with the projects and deployments for the script that offers them in the frame."""
        view = self._view(request, checked_parameters(request.query, ()))
        await self._choices.load(view)
        lists = self._choices.of(view).items()
        return _json(orjson.dumps({name: [each._asdict() for each in offered] for name, offered in lists}))

    async def _checks(self, request: web.Request) -> web.Response:
        """Answer with the check list of a drain for the script that shows it."""
        steps = await checks(
            self._view(request, checked_parameters(request.query, PAGES["connect"].parameters))
        )
        answer = {"verdict": verdict(steps)._asdict(), "checks": [step._asdict() for step in steps]}
        return _json(orjson.dumps(answer))

    async def _tail_rows(self, request: web.Request) -> web.Response:
        """Answer with the spans received since a time for the script that adds them to the page."""
        view = self._view(request, checked_parameters(request.query, (*PAGES["tail"].parameters, "after")))
        answer = await tail.ask(view)
        rows = [tail.shown(view, row) for row in answer.rows]
        return _json(orjson.dumps({"rows": rows, "is_cut": answer.is_cut}))

    async def _compare_traces(self, request: web.Request) -> web.StreamResponse:
        """Redirect to the comparison of the traces `id` of a form, or of the spans `span` of a trace."""
        trace_id = quote(request.query.get("trace", ""), safe="")
        rows = request.query.getall("span" if trace_id else "id", [])
        if len(rows) != 2:  # noqa: PLR2004 - A and B
            query = MultiDict(item for item in request.query.items() if item[0] not in {"id", "span"})
            return await self.page(request, _NOT_TWO_SELECTED, query)
        a, b = (quote(row, safe="") for row in rows)
        if trace_id:
            return go_to(f"/trace/{trace_id}/with/{trace_id}?below_a={a}&below_b={b}")
        return go_to(f"/trace/{a}/with/{b}")

    async def _refusal(self, request: web.Request, page: Page, error: MalformedBody) -> web.Response:
        """Return the description of an error of the parameters. The frame has the default time range."""
        view = self._view(request, {})
        frame = await self._frame(page, view)
        # Every page has a content without parameters.
        status, rest = self._trouble(page, view, error, reset=quote(view.path))
        return document(status, frame + rest)

    def _view(self, request: web.Request, query: Mapping[str, str]) -> View:
        return View(
            request.path,
            query,
            time.time(),
            self._source_for(request),
            request.match_info,
            caller=request.get(CALLER),
            facts=self._facts,
        )

    def _view_with_range(self, request: web.Request, query: Mapping[str, str]) -> View:
        """Return the view; with the default time range and the error of the range if that is not valid."""
        try:
            return self._view(request, query)
        except MalformedBody as error:
            if error.field not in RANGE_PARAMETERS:
                raise
            others = {name: value for name, value in query.items() if name not in RANGE_PARAMETERS}
            view = self._view(request, others)
            view.range_error, view.rejected_since = sentence(str(error)), query.get("since", "")
            return view

    async def _outline(self, request: web.Request) -> web.Response:
        """Answer with the spans of a trace for the script that draws them."""
        source, trace_id = self._source_for(request), request.match_info["id"]
        body = await source.prepared(trace_id)
        if body is None:
            body = await source.outline(trace_id, lambda rows: outline_body(trace_of(rows)))
        if body is None:
            raise web.HTTPNotFound
        return _json(body)

    async def _matches(self, request: web.Request) -> web.Response:
        """Answer with the ids of the spans of a trace that have a text, or that are of a frame or a group."""
        query = checked_parameters(request.query, ("text", *MARKS))
        source, trace_id = self._source_for(request), request.match_info["id"]
        if "text" in query or not query:
            return _json(orjson.dumps(await source.matching(trace_id, has_text(query.get("text", "")))))
        found = await source.outline(
            trace_id, lambda rows: marked(trace_of(rows), query), group_key_of(query)
        )
        return _json(orjson.dumps(found or []))

    async def _span(self, request: web.Request) -> web.Response:
        row = await self._source_for(request).span(request.match_info["id"], request.match_info["span"])
        if row is None:
            raise web.HTTPNotFound
        return _json(orjson.dumps(details(row)))

    async def _linking(self, request: web.Request) -> web.Response:
        ids = request.match_info["id"], request.match_info["span"]
        return _json(orjson.dumps(await linking(self._source_for(request), *ids)))

    async def _build(self, page: Page, view: View) -> tuple[int, str]:
        """Return the status and the content of a page, or of the description of its error."""
        try:
            context = await page.build(view)
            status = context.get("status", HTTPStatus.OK)
            return status, self._render(page.name, page, view, context)
        except ReceiverError as error:
            return self._trouble(page, view, error)

    def _trouble(self, page: Page, view: View, error: ReceiverError, *, reset: str = "") -> tuple[int, str]:
        """Return the status and the description of an error. `reset`: URL without the parameters at fault."""
        problem, text = problem_of(error, FILTER), view.filter_text
        column = error_column(text) if isinstance(error, InvalidFilter) else 0
        literal = quoted(text) if column else ""
        context = {
            "trouble": problem.message,
            "text": text,
            "column": column,
            "literal": literal,
            "reset": reset,
        }
        return problem.status, self._render("trouble", page, view, context)

    async def _frame(self, page: Page, view: View) -> str:
        state = await self._facts.state(view.now_s)
        context = {
            "ranges": RANGES,
            "refreshes": REFRESHES,
            "state": state,
            "choices": self._choices.of(view),
            "view_paths": PATHS,
        }
        return self._render("frame", page, view, context)

    def _pages_for(self, view: View) -> dict[str, Page]:
        """Return the pages that the caller may open, without the page of SQL while SQL is off."""
        return {
            name: page
            for name, page in self._pages.items()
            if (page.within_projects or not view.projects) and (name != "sql" or view.source.allows_sql)
        }

    def _render(self, name: str, page: Page, view: View, context: Context) -> str:
        frame = {"page": page, "pages": self._pages_for(view), "view": view, "ranges": RANGES}
        return render(self._templates, name, {**frame, **context})


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers={**HEADERS, "Content-Type": JSON})


async def _check_filter(request: web.Request) -> web.Response:
    """Answer with the error of a filter and its column for the script of the field, or with `{}`."""
    text = checked_parameters(request.query, (FILTER,)).get(FILTER, "")
    try:
        parse_any_form(text)
    except InvalidFilter as error:
        return _json(orjson.dumps({"message": error.problem, "column": error.column}))
    return _json(b"{}")


async def _send_file(request: web.Request) -> web.Response:
    file = static_files().get(request.match_info["name"])
    if file is None or file.url != request.path:
        raise web.HTTPNotFound
    return web.Response(body=file.body, headers={**STATIC_HEADERS, "Content-Type": file.content_type})
