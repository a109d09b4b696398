"""File of the saved views, `DATA/views.json`: one document, in the form in which it is exported and imported.

Invariant: a change reads the file and replaces it atomically, one change at a time, so that a change of one
view never loses another. Of two changes of the same view, the last one stays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypedDict
from urllib.parse import parse_qs, urlsplit

import msgspec

from receiver.durable.files import DISK, Files, write_durably
from receiver.errors import DiskTrouble, LimitExceeded, NoSuchView

NAME: Final = "views.json"
VIEWS_MAX = 200
BYTES_MAX = 1 << 20
_changing = threading.Lock()


class SavedView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name, and the path and parameters of a page. Only `urls.checked_view` makes one of texts."""

    name: str
    url: str


class Views(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All views, sorted by name."""

    views: list[SavedView] = []


class ViewRow(TypedDict):
    """A name, and the path and parameters of a page."""

    name: str
    url: str


class ViewsDocument(TypedDict):
    """Saved views, sorted by name."""

    views: list[ViewRow]


class ViewFile:
    """The saved views of a data directory. Its methods block."""

    def __init__(self, directory: Path, files: Files = DISK) -> None:
        self._path = directory / NAME
        self._files = files

    def views(self, projects: Sequence[str] = ()) -> list[SavedView]:
        """Return the views; if `projects` are given, only views of one of them. Raises `DiskTrouble`.

        Ignores views that lead to another site, which only an edited file has.
        """
        local = [each for each in self._stored() if _is_local(each.url)]
        return [each for each in local if not projects or _project_of(each) in projects]

    def _stored(self) -> list[SavedView]:
        try:
            content = self._files.read_head(self._path, BYTES_MAX + 1)
            return msgspec.json.decode(content, type=Views).views
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DiskTrouble("the saved views cannot be read") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DiskTrouble(f"{NAME} has another form; expected what `views export` prints") from error

    def put(self, views: Iterable[SavedView]) -> None:
        """Add views, and replace those of the same names. Raises `LimitExceeded` or `DiskTrouble`."""
        with _changing:
            self._write({each.name: each for each in (*self._stored(), *views)})

    def delete(self, name: str) -> None:
        """Delete a view. Raises `NoSuchView` or `DiskTrouble`."""
        with _changing:
            views = {each.name: each for each in self._stored()}
            if views.pop(name, None) is None:
                raise NoSuchView("no saved view has this name")
            self._write(views)

    def _write(self, views: dict[str, SavedView]) -> None:
        if len(views) > VIEWS_MAX:
            raise LimitExceeded(f"expected at most {VIEWS_MAX} saved views; delete some", field="views")
        content = document(views.values())
        if len(content) > BYTES_MAX:
            raise LimitExceeded(f"the saved views have over {BYTES_MAX} bytes; delete some", field="bytes")
        try:
            write_durably(self._path, content, files=self._files)
        except OSError as error:
            raise DiskTrouble("the saved views cannot be written") from error


def document(views: Iterable[SavedView]) -> bytes:
    """Return the document of views. Equal views have equal bytes, and each has its own lines."""
    ordered = Views(sorted(views, key=lambda each: each.name))
    return msgspec.json.format(msgspec.json.encode(ordered)) + b"\n"


def _is_local(url: str) -> bool:
    """Return whether a URL is a path, which a browser opens at this address."""
    return url.startswith("/") and not url.startswith(("//", "/\\")) and url.isascii() and url.isprintable()


def _project_of(view: SavedView) -> str:
    """Return the project that the parameters of a view choose; empty if they choose none."""
    return parse_qs(urlsplit(view.url).query).get("project", [""])[0]
