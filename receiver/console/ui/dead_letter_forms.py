"""Forms that replay or drop a dead letter. The API has the same handlers.

After a change the browser is redirected to the page of the receiver, which shows the result. A form that
fails is answered with the error, so that the log of changes has its status.
"""

from __future__ import annotations

from aiohttp import web

from receiver.console.api.dead_letters import DeadLetterRoutes
from receiver.console.api.route import Route
from receiver.console.ui.document import go_to
from receiver.console.ui.forms import form_of
from receiver.console.ui.results import Results
from receiver.sizes import counted


class DeadLetterForms:
    """Routes of the forms."""

    def __init__(self, dead_letters: DeadLetterRoutes, results: Results) -> None:
        self._dead_letters = dead_letters
        self._results = results

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("POST", "/receiver/dead/{id}/replay", self._replay, "operator", changes=True),
            Route("POST", "/receiver/dead/{id}/drop", self._drop, "operator", changes=True),
        )

    async def _replay(self, request: web.Request) -> web.Response:
        await form_of(request)
        replayed = await self._dead_letters.replay(request.match_info["id"])
        if not replayed.segment:
            return self._done(f"{replayed.id} had no row to store and is deleted.")
        rows = counted(replayed.rows, "row")
        return self._done(f"{rows} of {replayed.id} moved into the journal as segment {replayed.segment}.")

    async def _drop(self, request: web.Request) -> web.Response:
        await form_of(request)
        name = request.match_info["id"]
        await self._dead_letters.drop(name)
        return self._done(f"{name} is deleted.")

    def _done(self, text: str) -> web.Response:
        return go_to(f"/receiver?result={self._results.keep(text)}#dead")
