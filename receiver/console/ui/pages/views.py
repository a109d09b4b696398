"""Page of the saved views: links to them, and forms that save, delete, export and import them."""

from __future__ import annotations

from pathlib import Path

from receiver.console.ui.page import Context
from receiver.console.ui.view import View
from receiver.console.ui.views.store import ViewFile


async def build(view: View) -> Context:
    """Return the views that the caller may see, and the URL `save` that a form offers to save."""
    file = ViewFile(Path(view.facts.loaded.settings.data_dir))
    return {
        "views": await view.facts.in_pool(lambda: file.views(view.projects)),
        "result": view.facts.results.result_of(view.query.get("result", "")),
        "saved_url": view.query.get("save", ""),
        "may_change": view.may("operator") and not view.projects,
    }
