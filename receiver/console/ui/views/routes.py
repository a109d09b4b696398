"""Routes of the saved views.

    GET    /api/v1/views           the document of all views that the caller may see
    POST   /api/v1/views           add the views of a document, and replace those of the same names
    DELETE /api/v1/views?name=     delete a view

Forms of the page `/views` do the same. Callers with limited projects see the views of their projects, and
change none.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web

from receiver.console.api.access import CALLER
from receiver.console.api.description.operation import BY_STORE, Operation
from receiver.console.api.responses import whole_json
from receiver.console.api.route import Route
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.console.ui.document import go_to
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.forms import form_of
from receiver.console.ui.views.store import SavedView, ViewFile, ViewsDocument, document
from receiver.console.ui.views.urls import checked_view, parse_views
from receiver.http.media_types import JSON, require_json

_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "url"],
        "properties": {"name": {"type": "string"}, "url": {"type": "string"}},
    },
}
_VIEWS: Final = Parameter("views", "views, each with its name and url", is_required=True, schema=_SCHEMA)
_NAME: Final = Parameter("name", "the name of a view", is_required=True)
_LIST: Final = Operation("views", "Saved views of pages.", errors=BY_STORE, row=ViewsDocument)
_PUT: Final = Operation(
    "saveViews",
    "Save views, and replace those of the same names.",
    errors=(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY, *BY_STORE),
    body=(_VIEWS,),
)
_DELETE: Final = Operation(
    "deleteView", "Delete a saved view.", (_NAME,), errors=(HTTPStatus.NOT_FOUND, *BY_STORE)
)


class ViewRoutes:
    """Handlers of the routes."""

    def __init__(self, facts: ReceiverFacts) -> None:
        self._facts = facts
        self._file = ViewFile(Path(facts.loaded.settings.data_dir))

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("GET", "/api/v1/views", self._list, "viewer", within_projects=True, operation=_LIST),
            Route("POST", "/api/v1/views", self._put, "operator", changes=True, operation=_PUT),
            Route("DELETE", "/api/v1/views", self._delete, "operator", changes=True, operation=_DELETE),
            Route("GET", "/views/export", self._list, "viewer", within_projects=True),
            Route("POST", "/views/save", self._save, "operator", changes=True),
            Route("POST", "/views/delete", self._drop, "operator", changes=True),
            Route("POST", "/views/import", self._import, "operator", changes=True),
        )

    async def _list(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        caller = request.get(CALLER)
        views = await self._facts.in_pool(lambda: self._file.views(caller.projects if caller else ()))
        headers = {"Content-Type": JSON}
        if request.path == "/views/export":
            headers["Content-Disposition"] = 'attachment; filename="views.json"'
        return web.Response(body=document(views), headers=headers)

    async def _put(self, request: web.Request) -> web.Response:
        require_json(request.content_type)
        reject_unknown_parameters(request.query)
        views = parse_views(await request.read())
        await self._facts.in_pool(lambda: self._file.put(views))
        return whole_json(HTTPStatus.OK, {"saved": len({each.name for each in views})})

    async def _delete(self, request: web.Request) -> web.Response:
        # Not a part of the path: a name may have slashes and braces.
        reject_unknown_parameters(request.query, ("name",))
        name = request.query.get("name", "")
        await self._facts.in_pool(lambda: self._file.delete(name))
        return whole_json(HTTPStatus.OK, {"name": name})

    async def _save(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        view = checked_view(form.get("name", ""), form.get("url", ""), form.get("since", ""))
        await self._facts.in_pool(lambda: self._file.put([view]))
        return self._done("The view is saved.", view)

    async def _drop(self, request: web.Request) -> web.Response:
        name = (await form_of(request)).get("name", "")
        await self._facts.in_pool(lambda: self._file.delete(name))
        return self._done("The view is deleted.")

    async def _import(self, request: web.Request) -> web.Response:
        views = parse_views((await form_of(request)).get("document", "").encode())
        await self._facts.in_pool(lambda: self._file.put(views))
        return self._done(f"{len(views)} {'view is' if len(views) == 1 else 'views are'} imported.")

    def _done(self, text: str, view: SavedView | None = None) -> web.Response:
        return go_to(f"/views?result={self._facts.results.keep(text, view.url if view else '')}")
